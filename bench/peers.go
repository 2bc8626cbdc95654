//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-relay/xds-relay/bench/internal/load"
	"github.com/xds-relay/xds-relay/bench/internal/result"
)

// contest is a workload that several servers are put through.
type contest struct {
	name     string
	workload string
	servers  []string
	change   func(*load.Options) // nil: the workload's defaults
}

// peers are the servers that are put through most workloads. A MuxCache over LinearCaches
// differs little from one of them, and is only in two.
var peers = []string{"floor", "floor-fixed", "relay", "linear", "snapshot"}

// clients is for more of them, at a rate that the machine can connect.
func clients(n int) func(*load.Options) {
	return func(o *load.Options) { o.Clients, o.ConnectRate, o.Duration = n, 300, 10*time.Second }
}

// crowd is for so many clients that changes must be rare, or what is measured is how a
// machine without a processor left merges them.
func crowd(n int) func(*load.Options) {
	return func(o *load.Options) {
		o.Clients, o.ConnectRate, o.Rate, o.Warmup, o.Duration = n, 300, 0.5, 4*time.Second, 30*time.Second
	}
}

// seldom is W1 for a server that takes nearly a second to tell all clients of a change.
func seldom(o *load.Options) { o.Rate, o.Warmup, o.Duration = 1, 3*time.Second, 15*time.Second }

func lasting(d time.Duration) func(*load.Options) {
	return func(o *load.Options) { o.Duration = d }
}

// resources is for how the cost of one change depends on how many there are that do not
// change.
func resources(n int) func(*load.Options) {
	return func(o *load.Options) { o.Clients, o.World.Clusters, o.ConnectRate, o.Rate = 20, n, 5, 100 }
}

// contests are what make bench-peers runs.
var contests = []contest{
	{"W1", "fanout", append(slices.Clone(peers), "mux", "chain"), nil},
	{"W1-seldom", "fanout", []string{"floor", "relay", "snapshot"}, seldom},
	{"W1-5000", "fanout", []string{"floor", "floor-fixed", "relay"}, clients(5000)},
	// Without a SnapshotCache, which hashes all 10,000 assignments for each change; run named
	// --start snapshot measures it alone.
	{"W2", "named", []string{"floor", "floor-fixed", "relay", "linear"}, nil},
	{"W3", "herd", peers, nil},
	{"W3-named", "herd-named", []string{"floor", "floor-fixed", "relay", "linear"}, nil},
	{"W4", "reconnect", peers, nil},
	{"W5", "memory", append(slices.Clone(peers), "mux"), nil},
	{"W5-names", "names", []string{"relay"}, nil},
	{"SotW", "sotw", peers, lasting(10 * time.Second)},
	{"flat-1000", "fanout", []string{"relay"}, resources(1000)},
	{"flat-100000", "fanout", []string{"relay"}, resources(100000)},
	{"flat-100", "fanout", []string{"floor", "relay"}, clients(100)},
	{"R6", "fanout", []string{"floor", "relay"}, crowd(10000)},
	{"R10", "herd", []string{"floor", "relay"}, func(o *load.Options) { o.Clients = 5000 }},
	{"mixed", "mixed", []string{"floor", "relay"}, lasting(30 * time.Second)},
}

func newPeers() *cobra.Command {
	var only, names []string
	var reps int
	var duration time.Duration
	var mutual bool
	var rules string
	var out output
	var all []string
	for _, c := range contests {
		all = append(all, c.name)
	}
	cmd := &cobra.Command{
		Use:   "peers",
		Short: "Run workloads against the relay and its peers, interleaved",
		Long: `Run workloads against the relay and its peers, and put them side by side. Of each
workload the first repetition is run against every server, one after the other, then
the second, in the reverse order, and so on: what disturbs the machine for a while
disturbs all. Ratios are taken within a repetition.

A relay that is built already is relay=<path>, and takes part where relay does; results
call it after its file. A server that is named twice runs twice, the second time as
relay#2 or relay=old#2: how much that differs from the first is what the machine adds.

The workloads are ` + strings.Join(all, ", ") + `.`,
		Example: `  go run ./bench peers --only W1,W4 --servers floor,relay
  go run ./bench peers --only W1 --servers relay,relay=bin/old,relay=bin/old --reps 7 --out bin/binary.json
  go run ./bench compare --over relay=old bin/binary.json`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringSliceVar(&only, "only", all, "which workloads")
	f.StringSliceVar(&names, "servers", startable, "which servers; relay=<path> is a relay that is built already")
	f.IntVar(&reps, "reps", 3, "repetitions")
	f.DurationVar(&duration, "duration", 0, "how long changes are measured; 0: as the workload has it")
	f.BoolVar(&mutual, "mtls", false, "clients and relays speak mutual TLS; only relays take part")
	f.StringVar(&rules, "rules", "", "authz.rules_file of the relay that is built from this tree; with --mtls its clients are "+benchIdentity+", else anonymous")
	out.register(cmd, "table")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		for _, name := range only {
			if !slices.Contains(all, name) {
				return fmt.Errorf("no such workload: %q: there are %s", name, strings.Join(all, ", "))
			}
		}
		var workloads []*load.Workload
		for _, c := range contests {
			if slices.Contains(only, c.name) {
				workloads = append(workloads, load.Find(c.workload))
			}
		}
		if err := errors.Join(out.check(workloads...), allowFiles(10000)); err != nil {
			return err
		}
		servers, err := prepare(ctx, names)
		if err != nil {
			return err
		}
		m := match{servers: servers, reps: reps, duration: duration, file: newFile(ctx, command(), servers), bar: newBar(), complaints: cmd.ErrOrStderr()}
		if err := m.provide(mutual, rules); err != nil {
			return err
		}
		defer m.cleanUp()
		for _, c := range contests {
			if !slices.Contains(only, c.name) {
				continue
			}
			err := m.play(ctx, c)
			if out.out != "" { // what there is survives what comes
				err = errors.Join(err, m.file.Write(out.out))
			}
			if err != nil {
				return err
			}
		}
		if len(m.file.Runs)+len(m.file.Notes) == 0 {
			return errors.New("there was nothing to run: --only and --servers leave nothing")
		}
		if err := out.write(m.file); err != nil {
			return err
		}
		if n := len(m.file.Notes); n > 0 {
			return &assertError{fmt.Sprintf("%d runs failed; the results have the rest", n)}
		}
		return nil
	}
	return cmd
}

// match is the contests of one call, and what has come of them.
type match struct {
	servers    []contender
	reps       int
	duration   time.Duration // 0: as the workload has it
	secured    *secured      // nil: in plaintext
	file       *result.File
	bar        *bar
	complaints io.Writer
}

// provide has the relays serve mutual TLS, and the one that is built from this tree by rules.
func (m *match) provide(mutual bool, rules string) (err error) {
	if mutual {
		m.servers = slices.DeleteFunc(m.servers, func(c contender) bool { return c.kind != "relay" })
		if m.secured, err = newSecured(); err != nil {
			return err
		}
	}
	for i := range m.servers {
		c := &m.servers[i]
		if c.secured = m.secured; rules != "" && c.kind == "relay" && c.source != nil {
			c.args = []string{"--set", "authz.rules_file=" + rules}
		}
	}
	return nil
}

func (m *match) cleanUp() {
	if m.secured != nil {
		m.secured.close()
	}
}

// entrants are the servers of the match that are put through a contest, in its order.
func (m *match) entrants(c contest) (all []contender) {
	for _, kind := range c.servers {
		for _, s := range m.servers {
			if s.kind == kind {
				all = append(all, s)
			}
		}
	}
	return all
}

// turn is the order of a repetition, of which the first is 0: every second one has the
// reverse of the one before, and each two begin with another server, so that neither time
// nor who ran before favours anybody.
func turn(all []contender, rep int) []contender {
	if len(all) == 0 {
		return nil
	}
	first := rep / 2 % len(all)
	order := slices.Concat(all[first:], all[:first])
	if rep%2 == 1 {
		slices.Reverse(order)
	}
	return order
}

// play plays a contest: each repetition against all servers. It fails only if ctx ends.
func (m *match) play(ctx context.Context, c contest) error {
	w := load.Find(c.workload)
	o := w.Defaults
	if c.change != nil {
		c.change(&o)
	}
	if m.duration > 0 && o.Duration > 0 {
		o.Duration = m.duration
	}
	entrants := m.entrants(c)
	for rep := range m.reps {
		for _, server := range turn(entrants, rep) {
			m.bar.Title(fmt.Sprintf("%s %d/%d %s", c.name, rep+1, m.reps, server.label))
			r, err := server.run(ctx, nil, nil, w, o, m.bar.Step)
			m.bar.Clear()
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				// One server that cannot do it says nothing about the others.
				m.file.Notes = append(m.file.Notes, fmt.Sprintf("%s, repetition %d, against %s failed: %.300s", c.name, rep+1, server.label, err))
				fmt.Fprintln(m.complaints, "failed:", err)
				continue
			}
			r.Repetition, r.Load = rep+1, loadAverage()
			m.file.Runs = append(m.file.Runs, r)
		}
	}
	return nil
}
