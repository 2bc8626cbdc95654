package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/xds-relay/xds-relay/internal/admin"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/events"
	"github.com/xds-relay/xds-relay/internal/logging"
	"github.com/xds-relay/xds-relay/internal/relay"
)

func newServe() *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the relay",
		Long: `Run the relay until SIGINT or SIGTERM. For downstream.drain_delay it then goes on,
and says that it is not ready. After that it closes its ports, and sends its clients
away one by one over downstream.drain. Ctrl-C (SIGINT) skips the delay if there is
no client. A second signal, a second or more after the first, ends it at once: clients
that are left are cut off, and what changed since the last write of the snapshot is not
in it.

SIGHUP has it read its configuration again: what can change changes, without a stream
being lost, the log says what needs a restart, and a configuration that is wrong changes
nothing. So does POST /-/reload on admin.listen and, with reload_on_change, a change of
the file.

Exits with 0 when it has shut down after one signal; with 130 (SIGINT) or 143
(SIGTERM) if a second one cut that short; with 2 if the command line or the
configuration is wrong, and with 1 if it cannot serve. Nothing is bound but the
addresses of downstream.listen, downstream.rest.listen, admin.listen and
metrics.listen.

With --from there is no control plane: what is in the files of a directory is served,
and served again when files are renamed into place.`,
		Example: `  xds-relay serve --upstream 127.0.0.1:15010 --listen 127.0.0.1:18000 --admin 127.0.0.1:18001
  xds-relay serve --from /etc/xds --listen 127.0.0.1:18000
  xds-relay serve -c relay.yaml --set timers.name_linger=1m`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hup := hangUps()
			defer signal.Stop(hup)
			c, err := s.load(cmd)
			if err != nil {
				return err
			}
			if err := relay.Check(c); err != nil {
				return &usageError{err}
			}
			log := newLog(c.Log)
			defer log.Close()
			bridgeGRPC(log.Logger)
			if hint := s.unread(); hint != "" {
				log.Warn(hint)
			}
			err = serve(cmd.Context(), c, log, func(r *relay.Relay, m *admin.Metrics, ring *events.Ring) *reloading {
				return startReloading(r, s.file, func() (*config.Config, error) { return s.load(cmd) }, hup, log, m, ring)
			})
			if cut := (*cutShort)(nil); err == nil || errors.As(err, &cut) {
				return err
			}
			log.Error("the relay cannot start", "err", err) // in the form of the lines before it
			return &saidError{err}
		},
	}
	s.register(cmd)
	return cmd
}

func serve(ctx context.Context, c *config.Config, log *logging.Log, reloads func(*relay.Relay, *admin.Metrics, *events.Ring) *reloading) error {
	if ctx == nil {
		ctx = context.Background()
	}
	signals, stop := terminations()
	defer stop()

	build := admin.ReadBuild(version)
	log.Info("xds-relay", "version", build.Version, "revision", build.Revision, "instance", c.InstanceName(), "upstream", c.Upstream.Address)
	for _, note := range c.Notes() {
		log.Warn(note.Msg, "file", note.File, "key", note.Key, "hint", note.Hint)
	}
	metrics := admin.NewMetrics(build, metricsOptions(c)...)
	tracer, err := newTracer(c, build.Version, log.Logger)
	if err != nil {
		return err
	}
	defer tracer.Close() // after the relay
	options := relay.Options{Log: log.Logger, Upstream: metrics, Downstream: metrics, Snapshot: metrics, Certificates: metrics, Files: metrics, Rules: metrics, Received: metrics, Loads: metrics, Convergence: metrics, Version: build.Version}
	options.Trace(tracer)
	options.Events, options.Watch = operators(c, metrics)
	defer startWebhook(c, options.Events, metrics, log.Logger)()
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
	reloader := reloads(r, metrics, options.Events)
	defer reloader.stop()
	faces, err := serveFaces(c, r, metrics, reloader, options, log)
	if err != nil {
		closeAll(listeners)
		r.Close(0)
		return err
	}
	defer faces.Close()
	if err := serveREST(r); err != nil {
		closeAll(listeners)
		r.Close(0)
		return err
	}
	for _, l := range listeners {
		r.Serve(l)
	}
	systemd := newSupervisor(log.Logger)
	defer attend(systemd, r)()
	first := awaitEnd(ctx, signals)
	systemd.tell("STOPPING=1")
	return shutDown(r, first, signals, log.Logger)
}

// serveREST serves downstream.rest.listen, if it is set.
func serveREST(r *relay.Relay) error {
	l, err := r.ListenREST()
	if err != nil {
		return bindError(err, "downstream.rest.listen")
	}
	if l == nil {
		return nil
	}
	return r.ServeREST(l)
}

// metricsOptions are what the configuration says of metrics.
func metricsOptions(c *config.Config) (options []admin.MetricsOption) {
	if !c.Metrics.NativeHistograms {
		options = append(options, admin.WithoutNativeHistograms())
	}
	return options
}

// faces are the relay's HTTP servers.
type faces []*admin.Server

// serveFaces serves admin.listen and metrics.listen, as far as they are set.
func serveFaces(c *config.Config, r *relay.Relay, m *admin.Metrics, reloader *reloading, o relay.Options, log *logging.Log) (all faces, err error) {
	for _, face := range []struct {
		address, key, flag, name string
		shown                    *admin.Face
	}{
		{
			c.Admin.Listen, "admin.listen", " (--admin)", "admin endpoint",
			admin.NewHandler(r, m, admin.HandlerOptions{Host: adminHost(c.Admin.Listen), Pprof: c.Admin.Pprof, Log: log.Logger, Level: log.Level, Reload: reloader.ask, CSDS: func() config.CSDS { return r.Config().Admin.CSDS }, Events: o.Events, Watch: o.Watch}),
		},
		{c.Metrics.Listen, "metrics.listen", "", "metrics endpoint", admin.NewProbes(r, m)},
	} {
		if face.address == "" {
			continue
		}
		l, err := relay.Listen(face.address)
		if err != nil {
			all.Close()
			return nil, bindError(fmt.Errorf("%s: %w", face.key, err), face.key+face.flag)
		}
		log.Info(face.name, "listener", l.Addr().String())
		all = append(all, admin.Serve(l, face.shown, log.Logger))
	}
	return all, nil
}

// Close closes all of them at once.
func (f faces) Close() {
	for _, s := range f {
		s.Close()
	}
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
