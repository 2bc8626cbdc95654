//go:build linux

package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/xds-relay/xds-relay/bench/internal/result"
)

func newCompare() *cobra.Command {
	var over string
	var figures []string
	var tolerance float64
	cmd := &cobra.Command{
		Use:   "compare old.json new.json",
		Short: "Compare two results files",
		Long: `Compare the medians of two results files. With --over, each server's figures are
first divided by those of that server in the same file: such ratios can be compared
although the machine was another one, or busier.

With --tolerance, a figure that is larger than the old one by more than so many
percent makes the exit status 1; --figures says which are judged. It is 2 if the new
file has something to judge that the old one has nothing to compare with.`,
		Example: `  go run ./bench compare before.json after.json
  go run ./bench compare --over floor --figures cpu_per_delivery --tolerance 15 bench/results/peers.json new.json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			old, err := result.Read(args[0])
			if err != nil {
				return err
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
	f.StringVar(&over, "over", "", "server whose figures the others are divided by")
	f.StringSliceVar(&figures, "figures", nil, "figures that are compared; none: those that are told first")
	f.Float64Var(&tolerance, "tolerance", 0, "how much worse a figure may be, in percent; 0: nothing is judged")
	return cmd
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
