//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/xds-relay/xds-relay/bench/internal/result"
)

func newCompare() *cobra.Command {
	var over string
	var figures []string
	var tolerance float64
	cmd := &cobra.Command{
		Use:   "compare [old.json] new.json",
		Short: "Compare two results files, or the servers of one",
		Long: `Compare the medians of two results files. With --over, each server's figures are
first divided by those of that server in the same file: such ratios can be compared
although the machine was another one, or busier.

With --tolerance, a figure that is larger than the old one by more than so many
percent makes the exit status 1; --figures says which are judged. It is 2 if the new
file has something to judge that the old one has nothing to compare with.

Of one file, --over puts the other servers' figures over those of that server: of each
repetition one over the other, and of these ratios the median, the least and the
greatest. With --tolerance a median is judged; where the server ran beside itself, as
one that peers names twice, what it shows over itself is allowed, too.`,
		Example: `  go run ./bench compare before.json after.json
  go run ./bench compare --over floor --figures cpu_per_delivery --tolerance 15 bench/results/peers.json new.json
  go run ./bench compare --over relay=old --tolerance 5 bin/binary.json`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			old, err := result.Read(args[0])
			if err != nil {
				return err
			}
			if len(args) == 1 {
				return compareServers(cmd.OutOrStdout(), args[0], old, over, figures, tolerance)
			}
			now, err := result.Read(args[1])
			if err != nil {
				return err
			}
			all := result.Compare(old, now, over, figures)
			if len(all) == 0 {
				return errors.New("the two files have no workload, server and figure in common")
			}
			if err := result.WriteChanges(cmd.OutOrStdout(), all); err != nil {
				return err
			}
			var worse []string
			for _, c := range all {
				if tolerance > 0 && c.New > c.Old+math.Abs(c.Old)*tolerance/100 {
					worse = append(worse, fmt.Sprintf("%s, %s, %s: %s of %s was %s, is %s", c.Workload, c.Variant, c.Server, c.Figure, c.Unit, result.Number(c.Old), result.Number(c.New)))
				}
			}
			var missing error
			if left := result.Uncompared(old, now, over, figures); tolerance > 0 && len(left) > 0 {
				missing = fmt.Errorf("%s: nothing to compare with in %s, so these are not judged:\n  %s", args[1], args[0], strings.Join(left, "\n  "))
			}
			if len(worse) > 0 {
				return errors.Join(missing, &assertError{fmt.Sprintf("worse by more than %g %%:\n  %s", tolerance, strings.Join(worse, "\n  "))})
			}
			return missing
		},
	}
	f := cmd.Flags()
	f.StringVar(&over, "over", "", "server whose figures the others are divided by; with one file it must be given")
	f.StringSliceVar(&figures, "figures", nil, "figures that are compared; none: those that are told first")
	f.Float64Var(&tolerance, "tolerance", 0, "how much worse a figure may be, in percent; 0: nothing is judged")
	return cmd
}

// compareServers compares those of one file.
func compareServers(w io.Writer, name string, f *result.File, over string, figures []string, tolerance float64) error {
	var servers []string
	for _, r := range f.Runs {
		if !slices.Contains(servers, r.Server) {
			servers = append(servers, r.Server)
		}
	}
	switch {
	case over == "":
		return errors.New("give two files, or --over and the server of one file that the others are compared with")
	case !slices.Contains(servers, over):
		return fmt.Errorf("--over %s: %s has %s", over, name, strings.Join(servers, ", "))
	}
	all, missing := f.Ratios(over, figures)
	if len(all) == 0 {
		return fmt.Errorf("%s: no server has a figure in common with %s", name, over)
	}
	if err := result.WriteRatios(w, all, over); err != nil || tolerance == 0 {
		return err
	}
	var unjudged error
	if len(missing) > 0 {
		unjudged = fmt.Errorf("%s: nothing to compare with, so these are not judged:\n  %s", name, strings.Join(missing, "\n  "))
	}
	if worse := result.Worse(all, over, 1+tolerance/100); len(worse) > 0 {
		return errors.Join(unjudged, &assertError{fmt.Sprintf("worse by more than %g %%, and than %s is than itself:\n  %s", tolerance, over, strings.Join(worse, "\n  "))})
	}
	return unjudged
}

func newReport() *cobra.Command {
	var format, to string
	cmd := &cobra.Command{
		Use:   "report results.json…",
		Short: "Make a page, or a table, of results files",
		Example: `  go run ./bench report bench/results/peers.json --to peers.html
  go run ./bench report bench/results/peers.json -o table`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			all, err := result.Read(args[0])
			if err != nil {
				return err
			}
			for _, name := range args[1:] {
				f, err := result.Read(name)
				if err != nil {
					return err
				}
				all.Append(f)
			}
			out := os.Stdout
			if to != "" {
				if out, err = os.Create(to); err != nil {
					return err
				}
				defer out.Close()
			}
			return writeAs(out, format, all)
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "html", "html, table, text or csv")
	cmd.Flags().StringVar(&to, "to", "", "file to write to; standard output if it is not given")
	return cmd
}
