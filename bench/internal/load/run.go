//go:build linux

package load

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/xds-relay/xds-relay/bench/internal/control"
	"github.com/xds-relay/xds-relay/bench/internal/process"
	"github.com/xds-relay/xds-relay/bench/internal/result"
	"github.com/xds-relay/xds-relay/bench/internal/wire"
	"github.com/xds-relay/xds-relay/bench/internal/world"
)

// Target is a server under test.
type Target struct {
	Name    string
	Address string
	TLS     *tls.Config    // nil: plaintext
	Pid     int            // 0: not known, and then its CPU and memory are not measured
	Metrics string         // URL of its metrics; empty: it has none
	Source  control.Source // where its changes come from; nil: nowhere
	Origin  string         // address of the source, if the server is its client
}

// Options are those of all workloads; each uses some.
type Options struct {
	Clients int     `json:"clients"`
	SotW    int     `json:"sotw_clients,omitempty"` // of them
	PerConn int     `json:"streams_per_connection"`
	Names   int     `json:"names_per_client,omitempty"` // of endpoint assignments
	Rate    float64 `json:"rate,omitempty"`             // changes a second
	// ConnectRate is how many clients connect a second; 0: all at once.
	ConnectRate float64       `json:"connect_rate"`
	Churn       float64       `json:"churn,omitempty"` // clients that are replaced, a second
	Warmup      time.Duration `json:"warmup_ns"`
	Settle      time.Duration `json:"settle_ns"` // without load, before memory is read
	Duration    time.Duration `json:"duration_ns"`
	World       world.Spec    `json:"world"`
}

// Progress is called with the phase of a run, and how much of it is done.
type Progress func(phase string, done float64)

// Variant tells what differs most between runs of a workload.
func (w *Workload) Variant(o Options) string {
	text := fmt.Sprintf("%d clients", o.Clients)
	if o.World.Clusters > 0 {
		text += fmt.Sprintf(", %d clusters", o.World.Clusters)
	}
	if o.World.Assignments > 0 {
		text += fmt.Sprintf(", %d assignments", o.World.Assignments)
	}
	if o.Rate != w.Defaults.Rate {
		text += fmt.Sprintf(", %g changes a second", o.Rate)
	}
	return text
}

// check rejects options that cannot be run, before anything starts.
func (w *Workload) check(o Options, t Target) error {
	d := w.Defaults
	switch {
	case o.Clients < 1:
		return fmt.Errorf("%d clients: there must be one", o.Clients)
	case o.SotW > o.Clients:
		return fmt.Errorf("%d of %d clients speak SotW: give --sotw-clients fewer", o.SotW, o.Clients)
	case d.World.Clusters > 0 && o.World.Clusters < 1:
		return fmt.Errorf("%d clusters: there must be one", o.World.Clusters)
	case o.Names > o.World.Assignments:
		return fmt.Errorf("each client is to subscribe to %d of %d assignments: give fewer --names, or more --assignments", o.Names, o.World.Assignments)
	case d.Names > 0 && o.Names < 1:
		return fmt.Errorf("%d names for each client: there must be one", o.Names)
	case d.Rate > 0 && o.Rate <= 0:
		return fmt.Errorf("%g changes a second: there must be some; herd, reconnect and memory run without", o.Rate)
	case d.Rate > 0 && t.Source == nil:
		return fmt.Errorf("%s needs changes: say where they come from, with --origin or --control", w.Name)
	}
	return nil
}

// run is a workload that runs.
type run struct {
	Options
	ctx       context.Context
	target    Target
	progress  Progress
	result    *result.Run
	world     *world.World
	rec       *recorder
	fleet     *fleet
	primer    *fleet // one client of everything, so that a server has it all before others come
	begin     time.Time
	random    *rand.Rand
	step      int // the last one taken
	connected int // clients
	// interest counts the clients by the number of the assignment they subscribed to.
	interest []int
}

// Run runs a workload.
func Run(ctx context.Context, w *Workload, o Options, t Target, p Progress) (*result.Run, error) {
	if err := w.check(o, t); err != nil {
		return nil, err
	}
	if p == nil {
		p = func(string, float64) {}
	}
	phase := "" // of which an error tells
	r := &run{
		Options: o, ctx: ctx, target: t, world: world.New(o.World), rec: newRecorder(), begin: time.Now(),
		random: rand.New(rand.NewPCG(o.World.Seed, 2)),
		result: &result.Run{Workload: w.Name, Server: t.Name, Variant: w.Variant(o), Options: o},
	}
	r.progress = func(now string, done float64) {
		phase = now
		p(now, done)
	}
	r.interest = make([]int, o.World.Assignments)
	r.fleet = newFleet(t, o.PerConn, r.rec)
	r.primer = newFleet(t, 1, newRecorder())
	defer r.primer.close()
	defer r.fleet.close()
	if t.Source != nil {
		if err := t.Source.World(o.World); err != nil {
			return nil, err
		}
	}
	stop := r.sample()
	err := w.run(r)
	r.result.Samples = stop()
	if r.Churn > 0 {
		slopes(r.result)
	}
	r.result.Seconds = result.Round(time.Since(r.begin))
	if err != nil {
		err = fmt.Errorf("%s against %s, %s: %w", w.Name, t.Name, phase, err)
		if seen, failed := r.source(); t.Origin != "" && failed == nil && seen.Streams == 0 && ctx.Err() == nil {
			err = fmt.Errorf("%w; nobody has connected to the origin at %s", err, t.Origin)
		}
		return nil, err
	}
	return r.result, nil
}

// usage reads what the server has used, if it is known where to look.
func (r *run) usage() (process.Usage, error) {
	if r.target.Pid == 0 {
		return process.Usage{}, nil
	}
	return process.ReadUsage(r.target.Pid)
}

// metrics reads what the server says of itself, if it does.
func (r *run) metrics() (process.Metrics, error) {
	if r.target.Metrics == "" {
		return nil, nil
	}
	return process.Scrape(r.target.Metrics)
}

// sample looks at the server's process until stop is called.
func (r *run) sample() (stop func() []result.Sample) {
	var samples []result.Sample
	ctx, cancel := context.WithCancel(r.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for every := sampleEvery(r.Duration); until(ctx, r.begin.Add(time.Duration(len(samples))*every)); {
			u, err := r.usage()
			if err != nil || r.target.Pid == 0 {
				return // the run will notice
			}
			s := result.Sample{Seconds: result.Round(time.Since(r.begin)), CPUSeconds: u.CPU.Seconds(), RSS: u.RSS, FDs: u.FDs}
			if r.Churn > 0 { // asking costs the server little, but not nothing
				if m, err := r.metrics(); err == nil {
					// What the last garbage collection left; in between the heap only grows.
					s.Heap, s.Goroutines = int64(m["go_gc_heap_live_bytes"]), int(m["go_goroutines"])
				}
			}
			samples = append(samples, s)
		}
	}()
	return func() []result.Sample {
		cancel()
		<-done
		return samples
	}
}

// sampleEvery gives a run of a length about a hundred samples.
func sampleEvery(d time.Duration) time.Duration { return max(d/80, 250*time.Millisecond) }

// pause lets a phase take its time.
func (r *run) pause(phase string, d time.Duration) error {
	begin := time.Now()
	for done := time.Duration(0); done < d; done = time.Since(begin) {
		r.progress(phase, float64(done)/float64(d))
		if !until(r.ctx, time.Now().Add(min(d-done, 200*time.Millisecond))) {
			return r.ctx.Err()
		}
	}
	return nil
}

// clusters is a subscription of all clusters.
func (r *run) clusters(delta bool, versions map[string]string) *wire.Subscription {
	s := &wire.Subscription{TypeURL: world.Cluster.TypeURL(), Versions: versions}
	s.Prepare(delta)
	return s
}

// same is a fleet in which all clients are alike.
func same(p *profile) func(int) *profile { return func(int) *profile { return p } }

// prime lets one client have all clusters, and tells their versions.
func (r *run) prime() (versions map[string]string, err error) {
	p := &profile{delta: true, subs: []*wire.Subscription{r.clusters(true, nil)}, complete: r.World.Clusters}
	p.versions = make(map[string]string)
	return p.versions, r.primeWith(p)
}

// primeWith has one client come and get everything that it asks for, so that the server has it.
func (r *run) primeWith(p *profile) error {
	r.progress("first client", 0)
	if err := r.primer.connect(r.ctx, same(p), 0, 1, r.pace(0)); err != nil {
		return err
	}
	return r.primer.await(r.ctx, "complete", &r.primer.complete, 1, syncWithin)
}

// assignments is a subscription of n random endpoint assignments.
func (r *run) assignments(delta bool, n int) *wire.Subscription {
	s := &wire.Subscription{TypeURL: world.Endpoint.TypeURL()}
	chosen := make(map[int]bool, n)
	for len(chosen) < min(n, r.World.Assignments) {
		i := r.random.IntN(r.World.Assignments)
		if n >= r.World.Assignments {
			i = len(chosen)
		}
		if !chosen[i] {
			chosen[i] = true
			r.interest[i]++
			s.Names = append(s.Names, r.world.Name(world.Endpoint, i))
		}
	}
	s.Prepare(delta)
	return s
}

// pace says when each client connects.
func (r *run) pace(rate float64) func(int) time.Time {
	begin := time.Now()
	return func(i int) time.Time {
		if rate <= 0 {
			return begin
		}
		return begin.Add(time.Duration(float64(i) / rate * float64(time.Second)))
	}
}

// Limits for what has no rate of its own.
const (
	syncWithin  = 3 * time.Minute
	quietAfter  = 5 * time.Second // without a delivery, no more will come
	drainWithin = 60 * time.Second
	lastAcks    = time.Second // until they are handled, too
)

// changes takes the steps of a time at the run's rate, and measures how they arrive.
func (r *run) changes(phase string, d time.Duration) (*schedule, error) {
	n := max(int(d.Seconds()*r.Rate), 1)
	interval := time.Duration(float64(time.Second) / r.Rate)
	first := r.step + 1
	s := r.rec.begin(first, n, time.Now().Add(100*time.Millisecond), interval, r.audience)
	for i := range n {
		if i%max(n/100, 1) == 0 {
			r.progress(phase, float64(i)/float64(n))
		}
		if !until(r.ctx, s.due(first+i)) {
			return nil, r.ctx.Err()
		}
		if err := r.target.Source.Step(first + i); err != nil {
			return nil, err
		}
		if err := r.fleet.err(); err != nil {
			return nil, err
		}
	}
	r.step += n
	r.drain(s)
	return s, r.fleet.err()
}

// audience is how many clients a step is to reach.
func (r *run) audience(step int) int {
	if r.World.Changes == world.Cluster {
		return int(r.fleet.complete.Load())
	}
	return r.interest[r.world.Changed(step)]
}

// drain waits until every change has reached every client, or nothing arrives any
// more: a server may merge two changes of one resource.
func (r *run) drain(s *schedule) {
	begin, moved, last := time.Now(), time.Now(), int64(-1)
	for time.Since(moved) < quietAfter && time.Since(begin) < drainWithin {
		if n := s.deliveries.Load(); n != last {
			last, moved = n, time.Now()
		}
		select {
		case <-s.done:
			return
		case <-r.ctx.Done():
			return
		case <-time.After(100 * time.Millisecond):
			r.progress("drain", float64(s.settled.Load())/float64(len(s.audience)))
		}
	}
}
