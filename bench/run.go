//go:build linux

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/xds-relay/xds-relay/bench/internal/load"
)

func newRun() *cobra.Command {
	cmd := &cobra.Command{Use: "run", Short: "Run one workload against one server"}
	for _, w := range load.Workloads {
		cmd.AddCommand(newWorkload(w))
	}
	return cmd
}

func newWorkload(w *load.Workload) *cobra.Command {
	o := w.Defaults
	var start string
	cmd := &cobra.Command{
		Use: w.Name, Short: w.Short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			p, err := build(ctx, []string{start})
			if err != nil {
				return err
			}
			s, err := p.start(ctx, start, nil)
			if err != nil {
				return err
			}
			defer s.Stop()
			r, err := load.Run(ctx, w, o, s.target, nil)
			if err != nil {
				return fmt.Errorf("%w\n%s", err, s.Output())
			}
			for _, f := range r.Figures {
				fmt.Printf("%s %-28s %12.3f %s\n", strings.Repeat(" ", 0), f.Name, f.Value, f.Unit)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&start, "start", "relay", "server to build and start")
	f.IntVar(&o.Clients, "clients", o.Clients, "clients")
	f.DurationVar(&o.Duration, "duration", o.Duration, "how long changes are measured")
	f.Float64Var(&o.Rate, "rate", o.Rate, "changes a second")
	return cmd
}
