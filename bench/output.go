//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/xds-relay/xds-relay/bench/internal/load"
	"github.com/xds-relay/xds-relay/bench/internal/report"
	"github.com/xds-relay/xds-relay/bench/internal/result"
)

// output is where results go, and what must be true of them.
type output struct {
	format, out string
	asserts     []string
	labels      map[string]string
}

func (o *output) register(cmd *cobra.Command, format string) {
	f := cmd.Flags()
	f.StringVarP(&o.format, "output", "o", format, "what is written to standard output: text, table, json, csv or html")
	f.StringVar(&o.out, "out", "", "file that the results are written to, as JSON")
	f.StringArrayVar(&o.asserts, "assert", nil, "what must be true of the medians, such as 'propagation_p99<=250ms'; else the exit status is 1")
	f.StringToStringVar(&o.labels, "label", nil, "key=value to be kept with the results")
}

// check finds mistakes before an hour is spent on a run of some workloads. An assertion is
// for those that have its figure, and one has to.
func (o *output) check(workloads ...*load.Workload) error {
	switch o.format {
	case "text", "table", "json", "csv", "html":
	default:
		return fmt.Errorf("--output %s: there are text, table, json, csv and html", o.format)
	}
	figures := make(map[string]string)
	for _, w := range workloads {
		maps.Copy(figures, w.Figures())
	}
	for _, text := range o.asserts {
		a, err := result.ParseAssertion(text)
		if err == nil {
			err = a.Fits(figures)
		}
		if err != nil {
			return fmt.Errorf("--assert %q: %w", text, err)
		}
	}
	return nil
}

// write writes results and judges them.
func (o *output) write(f *result.File) error {
	f.Labels = o.labels
	if o.out != "" {
		if err := f.Write(o.out); err != nil {
			return err
		}
	}
	if err := writeAs(os.Stdout, o.format, f); err != nil {
		return err
	}
	return assert(f, o.asserts)
}

func writeAs(w io.Writer, format string, f *result.File) error {
	switch format {
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", " ")
		return e.Encode(f)
	case "csv":
		return f.WriteCSV(w)
	case "html":
		return report.Write(w, f)
	case "table":
		return f.WriteTable(w)
	}
	return f.WriteText(w)
}

// assert checks each assertion against each group of runs that has its figure.
func assert(f *result.File, asserts []string) error {
	keys, runs := f.Group()
	var failures []string
	for _, text := range asserts {
		a, err := result.ParseAssertion(text)
		if err != nil {
			return err
		}
		found := false
		var missing error
		for _, k := range keys {
			why, err := a.Check(runs[k])
			if err != nil {
				missing = err
				continue
			}
			found = true
			if why != "" {
				failures = append(failures, fmt.Sprintf("%s against %s, %s: %s%s", k.Workload, k.Server, k.Variant, why, lost(a.Figure, runs[k])))
			}
		}
		if !found {
			return errors.Join(fmt.Errorf("assertion %q", text), missing)
		}
	}
	if len(failures) > 0 {
		return &assertError{"not as it should be:\n  " + strings.Join(failures, "\n  ")}
	}
	return nil
}

// lost tells, of a figure of propagation, how many deliveries in it never came.
func lost(figure string, runs []*result.Run) string {
	missing, _ := result.Over(runs, "missing_deliveries")
	if missing.Max == 0 || !strings.HasPrefix(figure, "propagation_") && !strings.HasPrefix(figure, "last_client_") {
		return ""
	}
	return fmt.Sprintf("; up to %.0f deliveries of a repetition never came, and count as long as was waited", missing.Max)
}
