//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/xds-relay/xds-relay/bench/internal/control"
	"github.com/xds-relay/xds-relay/bench/internal/load"
	"github.com/xds-relay/xds-relay/bench/internal/result"
)

func newRun() *cobra.Command {
	cmd := &cobra.Command{
		Use: "run",
		// RunE says what is wrong: a workload that there is not, and not its flags.
		Args:               cobra.ArbitraryArgs,
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		Short:              "Run one workload against one server",
		Long: `Run one workload against one server. The server is one that the bench builds and
starts (--start), or one that runs already (--server). Of the latter, --pid tells
where its CPU time and memory are read, and one of two flags where its changes come
from: with --origin the bench plays the control plane of a relay, at an address that
the relay dials; with --control the server itself is told, over a protocol of three
lines (bench/internal/control). Without either only herd, reconnect and memory run.`,
		Example: `  go run ./bench run fanout
  go run ./bench run fanout --start floor --clients 5000 -o html > floor.html
  go run ./bench run fanout --server 127.0.0.1:18000 --pid 4711 --origin 127.0.0.1:15010 --assert 'propagation_p99<=250ms'`,
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error { return noWorkload(args) }
	for _, w := range load.Workloads {
		cmd.AddCommand(newWorkload(w))
	}
	return cmd
}

// noWorkload says what there is to somebody who named no workload, or one that there is not.
func noWorkload(args []string) error {
	var all []string
	for _, w := range load.Workloads {
		all = append(all, w.Name)
	}
	there := "there are " + strings.Join(all, ", ")
	if len(args) == 0 {
		return fmt.Errorf("run: name a workload: %s", there)
	}
	return fmt.Errorf("no such workload: %q: %s", args[0], there)
}

// where is the server under test, as the flags say it.
type where struct {
	start   string
	sets    []string
	server  string
	pid     int
	metrics string
	control string
	origin  string
	tls     tlsFlags
}

// check finds flags that contradict each other: one that is not heeded would leave
// figures of something else than was asked for.
func (at *where) check(f *pflag.FlagSet) error {
	given := func(names ...string) (all []string) {
		for _, n := range names {
			if f.Changed(n) {
				all = append(all, "--"+n)
			}
		}
		return all
	}
	if at.server == "" {
		if all := given("server", "pid", "metrics", "control", "origin"); len(all) > 0 {
			return fmt.Errorf("%s: for a server that runs already: give its address as --server", strings.Join(all, ", "))
		}
		if kind, _, _ := strings.Cut(at.start, "="); len(at.sets) > 0 && kind != "relay" && kind != "chain" {
			return fmt.Errorf("--set: %s has no such configuration: it goes with --start relay or chain", at.start)
		}
		return nil
	}
	switch all := given("start", "set"); {
	case len(all) > 0:
		return fmt.Errorf("%s: for a server that is started here, and --server %s runs already", strings.Join(all, ", "), at.server)
	case at.origin != "" && at.control != "":
		return errors.New("--origin, --control: changes come from one place")
	}
	return nil
}

func newWorkload(w *load.Workload) *cobra.Command {
	o := w.Defaults
	var at where
	var out output
	var reps int
	cmd := &cobra.Command{Use: w.Name, Short: w.Short, Args: cobra.NoArgs}
	f := cmd.Flags()
	f.StringVar(&at.start, "start", "relay", "server to build and start: "+strings.Join(startable, ", ")+"; or relay=<path>, a relay that is built already")
	f.StringArrayVar(&at.sets, "set", nil, "key=value of the relay's configuration, with --start relay or chain")
	f.StringVar(&at.server, "server", "", "address of a server that runs already; then nothing is started")
	f.IntVar(&at.pid, "pid", 0, "process id of --server")
	f.StringVar(&at.metrics, "metrics", "", "URL of the Prometheus metrics of --server")
	f.StringVar(&at.control, "control", "", "address where --server is told what to serve")
	f.StringVar(&at.origin, "origin", "", "address to play the control plane of --server at")
	at.tls.register(f)
	f.IntVar(&reps, "reps", 1, "repetitions, each with a server of its own if it is started here")
	registerOptions(f, &o)
	out.register(cmd, "text")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		if reps < 1 {
			return fmt.Errorf("--reps %d: there must be one", reps)
		}
		if err := errors.Join(at.check(f), out.check(w), allowFiles(o.Clients/max(o.PerConn, 1))); err != nil {
			return err
		}
		var started []contender
		if at.server == "" {
			var err error
			if started, err = prepare(ctx, []string{at.start}); err != nil {
				return err
			}
		}
		file := newFile(ctx, command(), started)
		b := newBar()
		for rep := range reps {
			b.Title(fmt.Sprintf("%s, repetition %d", w.Name, rep+1))
			r, err := at.run(ctx, started, w, o, b.Step)
			b.Clear()
			if err != nil {
				return err
			}
			r.Repetition, r.Load = rep+1, loadAverage()
			file.Runs = append(file.Runs, r)
		}
		return out.write(file)
	}
	return cmd
}

// command is the command line, as somebody else would type it.
func command() string {
	return strings.Join(append([]string{"go run ./bench"}, os.Args[1:]...), " ")
}

// run runs a workload against the server, which is the one to be started, or runs already.
func (at *where) run(ctx context.Context, started []contender, w *load.Workload, o load.Options, p load.Progress) (*result.Run, error) {
	secure, err := at.tls.config()
	if err != nil {
		return nil, err
	}
	if len(started) > 0 {
		return started[0].run(ctx, at.sets, secure, w, o, p)
	}
	t := load.Target{Name: filepath.Base(at.server), Address: at.server, TLS: secure, Pid: at.pid, Metrics: at.metrics}
	switch {
	case at.origin != "":
		origin, address, err := startOrigin(at.origin)
		if err != nil {
			return nil, err
		}
		defer origin.Stop()
		t.Source, t.Origin = origin, address
	case at.control != "":
		remote, err := control.Dial(at.control)
		if err != nil {
			return nil, err
		}
		defer remote.Close()
		t.Source = remote
	}
	return load.Run(ctx, w, o, t, p)
}

// run starts a server, runs a workload against it, and ends it.
func (c *contender) run(ctx context.Context, sets []string, secure *tls.Config, w *load.Workload, o load.Options, progress load.Progress) (*result.Run, error) {
	var args []string
	for _, s := range sets {
		args = append(args, "--set", s)
	}
	s, err := c.start(ctx, args)
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	if secure != nil {
		s.target.TLS = secure
	}
	r, err := load.Run(ctx, w, o, s.target, progress)
	if err != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("%w\n%s", err, s.Output())
	}
	return r, err
}
