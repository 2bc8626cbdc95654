package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-relay/xds-relay/internal/preflight"
	"github.com/xds-relay/xds-relay/internal/relay"
)

func newCheck() *cobra.Command {
	var s settings
	var within time.Duration
	var running bool
	var address string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Try what a configuration needs, control planes included",
		Long: `Check a configuration and what it names, then the way to each control plane, step by
step as the relay would go it: address, connection, TLS, ALPN; in which variants it
answers, how many clusters and listeners it has, and what it calls itself. Each line
says what was found, and of what does not work what to do about it.

With --running it asks a relay that runs instead, at --address, or where -c says that its
admin endpoint listens: are the control plane and the clients well, how long do certificates
last, is there room, how old is the snapshot, what is held back.

Exits with 0 if all is well, 1 if something does not work, and 2 if the command line or
the configuration is wrong.`,
		Example: `  xds-relay check -c relay.yaml
  xds-relay check --upstream 127.0.0.1:15010
  xds-relay check --running`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if running {
				return runningCheck(cmd, asking{address: address, file: s.file})
			}
			if address != "" {
				return &usageError{errors.New("--address goes with --running; without it, -c says what is checked")}
			}
			c, err := s.load(cmd)
			if err != nil {
				return err
			}
			if err := relay.Check(c); err != nil {
				return &usageError{err}
			}
			ctx := cmd.Context()
			if ctx == nil {
				ctx = context.Background()
			}
			out := cmd.OutOrStdout()
			for _, note := range c.Notes() {
				fmt.Fprintf(out, "note: %v\n", note)
			}
			failed := preflight.Run(ctx, c, preflight.Options{Within: within}, func(r preflight.Result) { fmt.Fprintln(out, r) })
			if failed > 0 {
				return fmt.Errorf("%d of the checks failed", failed)
			}
			return nil
		},
	}
	s.register(cmd)
	cmd.Flags().DurationVar(&within, "within", 5*time.Second, "how long each step may take")
	cmd.Flags().BoolVar(&running, "running", false, "check a relay that runs")
	cmd.Flags().StringVar(&address, "address", "", "address of the running relay's admin endpoint, host:port or unix:///path")
	return cmd
}

// runningCheck checks a relay that runs.
func runningCheck(cmd *cobra.Command, a asking) error {
	relay, err := a.open()
	if err != nil {
		return err
	}
	defer relay.Close()
	ctx, stop := interruptible(cmd)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	failed, err := checkRunning(ctx, relay, cmd.OutOrStdout())
	if err == nil && failed > 0 {
		err = fmt.Errorf("%d of the checks failed", failed)
	}
	return err
}
