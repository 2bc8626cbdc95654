//go:build linux

// Command bench measures xDS servers from outside, over the wire: what they cost, and
// how long changes take to reach every client. It drives a relay, or any other xDS
// server, with an open-loop load of cheap clients, and compares servers that ran side by
// side. It never imports the relay.
//
// It needs Linux, for what it reads of the server's process, and clients, changes and
// server on one machine: there is one clock, and all share its processors, so ratios
// of one run say more than its figures.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{
		Use:           "bench",
		Short:         "Measure xDS servers from outside",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newRun(), newPeers(), newCompare(), newReport())
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		var failed *assertError
		if errors.As(err, &failed) {
			os.Exit(1)
		}
		os.Exit(2)
	}
}

// assertError is a figure that is not as it should be.
type assertError struct{ text string }

func (e *assertError) Error() string { return e.text }
