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
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-relay/xds-relay/internal/admin"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/relay"
)

func newServe() *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the relay",
		Long: `Run the relay until SIGINT or SIGTERM. It then says that it is not ready, for
downstream.drain_delay, and sends its clients away one by one over
downstream.drain; a second signal ends it at once.

Exits with 0 after a signal, 2 if the command line or the configuration is wrong,
and 1 if it cannot serve. Nothing is bound but the addresses of downstream.listen and admin.listen.`,
		Example: `  xds-relay serve --upstream 127.0.0.1:15010 --listen 127.0.0.1:18000 --admin 127.0.0.1:18001
  xds-relay serve -c relay.yaml --set timers.name_linger=1m`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := s.load(cmd)
			if err != nil {
				return err
			}
			if err := c.CheckFiles(); err != nil {
				return &usageError{err}
			}
			log := newLog(c.Log)
			bridgeGRPC(log)
			return serve(cmd.Context(), c, log)
		},
	}
	s.register(cmd)
	return cmd
}

func serve(ctx context.Context, c *config.Config, log *slog.Logger) error {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	build := admin.ReadBuild(version)
	log.Info("xds-relay", "version", build.Version, "revision", build.Revision, "instance", c.InstanceName(), "upstream", c.Upstream.Address)
	for _, note := range c.Notes() {
		log.Warn(note.Msg, "key", note.Key, "hint", note.Hint)
	}
	metrics := admin.NewMetrics(build)
	tracer, err := newTracer(c, build.Version, log)
	if err != nil {
		return err
	}
	defer tracer.Close() // after the relay
	options := relay.Options{Log: log, Upstream: metrics, Downstream: metrics, Snapshot: metrics, Version: build.Version}
	options.Trace(tracer)
	r, err := relay.New(c, options)
	if err != nil {
		return err
	}
	metrics.Attach(r)
	listeners, err := r.Listen()
	if err != nil {
		r.Close(0)
		return bindError(err, "downstream.listen (--listen)")
	}
	var adminServer *admin.Server
	if c.Admin.Listen != "" {
		l, err := relay.Listen(c.Admin.Listen)
		if err != nil {
			closeAll(listeners)
			r.Close(0)
			return bindError(err, "admin.listen (--admin)")
		}
		log.Info("admin endpoint", "listener", l.Addr().String())
		adminServer = admin.Serve(l, admin.NewHandler(r, metrics, admin.HandlerOptions{Host: adminHost(c.Admin.Listen), Pprof: c.Admin.Pprof, Log: log}), log)
	}
	for _, l := range listeners {
		r.Serve(l)
	}

	<-ctx.Done()
	stop() // a second signal ends the process
	begin := time.Now()
	r.Drain(c.Downstream.DrainDelay, c.Downstream.Drain)
	if adminServer != nil {
		adminServer.Close()
	}
	log.Info("stopped", "dur_ms", time.Since(begin).Milliseconds())
	return nil
}

func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		l.Close()
	}
}

// adminHost is the host name of an admin address, empty for a Unix socket.
func adminHost(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}
	return host
}

// bindError says which setting names the address that cannot be had.
func bindError(err error, setting string) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w; another process has it: give %s another address", err, setting)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w; %s needs an address this user may bind", err, setting)
	}
	return fmt.Errorf("%w; see %s", err, setting)
}
