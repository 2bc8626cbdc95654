package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/xds-relay/xds-relay/internal/admin"
	"github.com/xds-relay/xds-relay/internal/demo"
	"github.com/xds-relay/xds-relay/internal/events"
	"github.com/xds-relay/xds-relay/internal/relay"
)

func newDemo() *cobra.Command {
	o := demo.Options{Out: os.Stdout}
	var adminAddress string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch a control plane, a relay and a fleet of clients at work",
		Long: `Start a small control plane, the relay and a fleet of real gRPC clients,
Delta and SotW, on loopback ports that the system picks, and show what passes
between them. It needs no configuration and leaves nothing behind. It ends on Ctrl-C,
or after --for.`,
		Example: `  xds-relay demo
  xds-relay demo --for 10s --clients 200
  xds-relay demo --control-plane 127.0.0.1:15010 --listen 127.0.0.1:18000 --admin 127.0.0.1:18001`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Clients < 2 || o.Clients > 5000 {
				return &usageError{fmt.Errorf("--clients is %d; use a number from 2 to 5000", o.Clients)}
			}
			if o.For < 0 {
				return &usageError{fmt.Errorf("--for is %v; use a positive time, or 0 to stop on Ctrl-C", o.For)}
			}
			if o.Rate <= 0 || o.Rate > 100 {
				return &usageError{fmt.Errorf("--rate is %g; use a number above 0, up to 100", o.Rate)}
			}
			if err := onLoopback(o.ControlPlane, o.Listen, adminAddress); err != nil {
				return &usageError{err}
			}
			ctx := cmd.Context()
			if ctx == nil {
				ctx = context.Background()
			}
			ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			o.TTY = isTerminal(os.Stdout)
			o.Color = o.TTY && os.Getenv("NO_COLOR") == ""
			o.Width = terminalWidth
			metrics := admin.NewMetrics(admin.ReadBuild(version))
			o.Relay = relay.Options{
				Upstream: metrics, Downstream: metrics, Received: metrics, Convergence: metrics,
				Events: events.NewRing(metrics.EventPublished), Watch: events.NewWatch(),
			}
			o.Admin = func(r *relay.Relay) (string, func(), error) {
				return demoAdmin(r, metrics, adminAddress, admin.HandlerOptions{Events: o.Relay.Events, Watch: o.Relay.Watch})
			}
			err := demo.Run(ctx, o)
			if errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, os.ErrPermission) {
				err = bindError(err, "--control-plane, --listen or --admin")
			}
			return err
		},
	}
	cmd.Flags().DurationVar(&o.For, "for", 0, "stop after so long; 0: on Ctrl-C")
	cmd.Flags().IntVar(&o.Clients, "clients", 50, "clients, half Delta and half SotW")
	cmd.Flags().Float64Var(&o.Rate, "rate", 2, "updates a second by the control plane")
	cmd.Flags().StringVar(&o.ControlPlane, "control-plane", "127.0.0.1:0", "address of the control plane; port 0: the system picks one")
	cmd.Flags().StringVar(&o.Listen, "listen", "127.0.0.1:0", "address of the relay")
	cmd.Flags().StringVar(&adminAddress, "admin", "127.0.0.1:0", "address of the relay's admin endpoint")
	return cmd
}

// onLoopback refuses addresses that others can reach: the demo is plaintext, and knows no
// identities.
func onLoopback(addresses ...string) error {
	for _, a := range addresses {
		host, _, err := net.SplitHostPort(a)
		ip := net.ParseIP(host)
		if err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return fmt.Errorf("%q is no address of the demo; use 127.0.0.1:port", a)
		}
	}
	return nil
}

// demoAdmin gives the demo's relay an admin endpoint.
func demoAdmin(r *relay.Relay, metrics *admin.Metrics, address string, shows admin.HandlerOptions) (url string, stop func(), err error) {
	l, err := relay.Listen(address)
	if err != nil {
		return "", nil, err
	}
	metrics.Attach(r)
	log := slog.New(slog.DiscardHandler)
	shows.Host, shows.Log = adminHost(address), log
	s := admin.Serve(l, admin.NewHandler(r, metrics, shows), log)
	return "http://" + l.Addr().String() + "/", s.Close, nil
}

func terminalWidth() int {
	width, _, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil {
		return 0
	}
	return width
}
