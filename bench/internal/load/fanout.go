//go:build linux

package load

import (
	"os"
	"time"

	"github.com/xds-relay/xds-relay/bench/internal/process"
	"github.com/xds-relay/xds-relay/bench/internal/wire"
)

// fanout is W1: every client has all clusters, and one of them changes at a time.
func fanout(r *run) error {
	if _, err := r.prime(); err != nil {
		return err
	}
	delta := r.SotW == 0
	all := &profile{delta: delta, subs: []*wire.Subscription{r.clusters(delta, nil)}, complete: r.World.Clusters}
	return r.connectAndChange(same(all))
}

// named is W2: every client has some assignments by name, and one of all changes at a
// time.
func named(r *run) error {
	return r.connectAndChange(func(int) *profile {
		return &profile{delta: true, subs: []*wire.Subscription{r.assignments(true, r.Names)}, complete: r.Names}
	})
}

// mixed has clients of both variants, each with all clusters and some assignments. The
// clients of one variant, and of either, are spread evenly over time.
func mixed(r *run) error {
	if _, err := r.prime(); err != nil {
		return err
	}
	delta, sotw := r.clusters(true, nil), r.clusters(false, nil)
	return r.connectAndChange(func(i int) *profile {
		p := &profile{delta: i*r.SotW/r.Clients == (i+1)*r.SotW/r.Clients, complete: r.World.Clusters + r.Names}
		clusters := sotw
		if p.delta {
			clusters = delta
		}
		p.subs = []*wire.Subscription{clusters, r.assignments(p.delta, r.Names)}
		return p
	})
}

// connectAndChange connects the missing clients, reports their cost while nothing
// changes, and then lets resources change.
func (r *run) connectAndChange(of func(i int) *profile) error {
	base, err := r.usage()
	if err != nil {
		return err
	}
	before := r.connected
	if err := r.connect(r.Clients, of); err != nil {
		return err
	}
	if err := r.pause("settle", r.Settle); err != nil {
		return err
	}
	idle, err := r.usage()
	if err != nil {
		return err
	}
	r.idle(base, idle, r.Clients-before)
	if r.Warmup > 0 {
		if _, err := r.changes("warm up", r.Warmup); err != nil {
			return err
		}
		r.rec.reset()
	}
	return r.measure()
}

// connect connects clients until there are n, and waits until they have everything.
func (r *run) connect(n int, of func(i int) *profile) error {
	at, from := r.pace(r.ConnectRate), r.connected
	r.progress("connect", float64(from)/float64(r.Clients))
	if err := r.fleet.connect(r.ctx, of, from, n, func(i int) time.Time { return at(i - from) }); err != nil {
		return err
	}
	r.connected = n
	return r.fleet.await(r.ctx, "complete", &r.fleet.complete, n, syncWithin)
}

// idle adds the cost of clients while nothing changes.
func (r *run) idle(base, with process.Usage, clients int) {
	primed := r.World.Assignments == 0 // else they are among what it grows by, in a relay
	if r.target.Pid != 0 && clients > 0 && primed {
		r.result.Add("rss_base", float64(base.RSS)/(1<<20), "MiB")
		r.result.Add("rss_per_client", float64(with.RSS-base.RSS)/float64(clients)/1024, "KiB")
	}
}

// measure lets resources change for the run's duration, and adds the results.
func (r *run) measure() error {
	f := r.fleet
	m0, err := r.metrics()
	if err != nil {
		return err
	}
	in, out, responses, bytes := f.traffic.In.Load(), f.traffic.Out.Load(), f.responses.Load(), f.bytes.Load()
	begin := time.Now()
	own0, err := process.ReadUsage(os.Getpid())
	if err != nil {
		return err
	}
	u0, err := r.usage()
	if err != nil {
		return err
	}
	s, err := r.changes("changes", r.Duration)
	if err != nil {
		return err
	}
	if err := r.pause("quiet", lastAcks); err != nil {
		return err
	}
	u1, err := r.usage()
	if err != nil {
		return err
	}
	own1, err := process.ReadUsage(os.Getpid())
	if err != nil {
		return err
	}
	elapsed := time.Since(begin)
	m1, err := r.metrics()
	if err != nil {
		return err
	}
	in, out, responses, bytes = f.traffic.In.Load()-in, f.traffic.Out.Load()-out, f.responses.Load()-responses, f.bytes.Load()-bytes
	deliveries := float64(s.deliveries.Load())
	add := r.result.Add
	if r.target.Pid != 0 && deliveries > 0 {
		cpu := u1.CPU - u0.CPU
		add("cpu_per_delivery", float64(cpu.Microseconds())/deliveries, "µs")
		add("cpu_per_response", float64(cpu.Microseconds())/float64(responses), "µs")
		add("cpu_per_mib", float64(cpu.Microseconds())/1e3/(float64(in)/(1<<20)), "ms")
		add("cpu_cores", cpu.Seconds()/elapsed.Seconds(), "")
		add("rss_under_load", float64(u1.RSS)/(1<<20), "MiB")
	}
	add("load_cores", (own1.CPU-own0.CPU).Seconds()/elapsed.Seconds(), "") // clients and changes
	add("changes", float64(len(s.audience)), "")
	add("deliveries", deliveries, "")
	add("responses", float64(responses), "")
	if responses > 0 {
		add("changes_per_response", deliveries/float64(responses), "")
	}
	if deliveries > 0 {
		add("bytes_per_delivery", float64(in)/deliveries, "B")
		add("bytes_up_per_delivery", float64(out)/deliveries, "B")
		add("resource_bytes_per_delivery", float64(bytes)/deliveries, "B")
	}
	add("unsettled_changes", float64(len(s.audience))-float64(s.settled.Load()), "")
	add("missing_deliveries", float64(r.rec.missing(s, time.Now())), "")
	add("repeated_deliveries", float64(s.repeated.Load()), "")
	r.collector(m0, m1, elapsed, deliveries)
	if err := r.result.Distribution("propagation", r.rec.propagation()); err != nil {
		return err
	}
	return r.result.Distribution("last_client", r.rec.lastClient())
}

// collector adds what the Go runtime says of its garbage collector.
func (r *run) collector(m0, m1 process.Metrics, elapsed time.Duration, deliveries float64) {
	if m1 == nil {
		return
	}
	diff := func(name string) (float64, bool) {
		v, ok := m1[name]
		return v - m0[name], ok
	}
	if n, ok := diff("go_gc_duration_seconds_count"); ok {
		r.result.Add("gc_cycles_per_second", n/elapsed.Seconds(), "")
	}
	gc, ok1 := diff("go_cpu_classes_gc_total_cpu_seconds_total")
	all, ok2 := diff("go_cpu_classes_total_cpu_seconds_total")
	idle, ok3 := diff("go_cpu_classes_idle_cpu_seconds_total")
	if ok1 && ok2 && ok3 && all > idle {
		r.result.Add("gc_share", 100*gc/(all-idle), "%")
	}
	if v, ok := m1["go_memstats_heap_alloc_bytes"]; ok {
		r.result.Add("heap", v/(1<<20), "MiB")
	}
	if n, ok := diff("go_memstats_alloc_bytes_total"); ok && deliveries > 0 {
		r.result.Add("allocated_per_delivery", n/deliveries, "B")
	}
	if n, ok := diff("go_memstats_mallocs_total"); ok && deliveries > 0 {
		r.result.Add("allocations_per_delivery", n/deliveries, "")
	}
}
