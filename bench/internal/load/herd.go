//go:build linux

package load

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/xds-relay/xds-relay/bench/internal/control"
	"github.com/xds-relay/xds-relay/bench/internal/process"
	"github.com/xds-relay/xds-relay/bench/internal/wire"
)

// herd is W3: all clients connect at once, and get everything. The server has it: one
// client was there before.
func herd(r *run) error {
	if _, err := r.prime(); err != nil {
		return err
	}
	all := &profile{delta: r.SotW == 0, subs: []*wire.Subscription{r.clusters(r.SotW == 0, nil)}, complete: r.World.Clusters}
	return r.herd(same(all))
}

// herdNamed is the same where each client asks for some by name. The client that was there before has asked for all.
func herdNamed(r *run) error {
	some := func(n int) *profile {
		return &profile{delta: true, subs: []*wire.Subscription{r.assignments(true, n)}, complete: n}
	}
	if err := r.primeWith(some(r.World.Assignments)); err != nil {
		return err
	}
	return r.herd(func(int) *profile { return some(r.Names) })
}

func (r *run) herd(of func(i int) *profile) error {
	before, err := r.source()
	if err != nil {
		return err
	}
	base, err := r.stampede(of, &r.fleet.complete, "complete")
	if err != nil {
		return err
	}
	after, err := r.source()
	if err != nil {
		return err
	}
	if r.target.Origin != "" {
		r.result.Add("upstream_streams", float64(after.Streams), "")
		r.result.Add("upstream_extra_bytes", float64(after.Bytes-before.Bytes), "B")
	}
	if err := r.pause("settle", r.Settle); err != nil {
		return err
	}
	idle, err := r.usage()
	if err != nil {
		return err
	}
	if r.target.Pid != 0 {
		r.result.Add("rss_per_client", float64(idle.RSS-base.RSS)/float64(r.Clients)/1024, "KiB")
	}
	return nil
}

// reconnect is W4: all clients come back at once, with the versions of everything as it
// is. There is nothing to be sent to them.
func reconnect(r *run) error {
	versions, err := r.prime()
	if err != nil {
		return err
	}
	if n := len(versions); n != r.World.Clusters {
		return fmt.Errorf("the server gives %d clusters of %d a version and a name", n, r.World.Clusters)
	}
	back := &profile{delta: true, subs: []*wire.Subscription{r.clusters(true, versions)}}
	_, err = r.stampede(same(back), &r.fleet.answered, "answered")
	return err
}

// stampede lets all clients connect at once, waits until they are as they should be, and
// adds what it took.
func (r *run) stampede(of func(i int) *profile, count *atomic.Int64, what string) (base process.Usage, err error) {
	if r.target.Pid != 0 {
		if err := process.ResetPeak(r.target.Pid); err != nil {
			return base, err
		}
	}
	if base, err = r.usage(); err != nil {
		return base, err
	}
	r.progress("connect", 0)
	begin := time.Now()
	if err := r.fleet.connect(r.ctx, of, 0, r.Clients, r.pace(r.ConnectRate)); err != nil {
		return base, err
	}
	r.progress("connected", 0.5)
	if err := r.fleet.await(r.ctx, what, count, r.Clients, syncWithin); err != nil {
		return base, err
	}
	elapsed := time.Since(begin)
	if err := r.pause("quiet", lastAcks); err != nil {
		return base, err
	}
	u, err := r.usage()
	if err != nil {
		return base, err
	}
	f, n, add := r.fleet, float64(r.Clients), r.result.Add
	if r.target.Pid != 0 {
		add("cpu_per_cold_client", float64((u.CPU-base.CPU).Microseconds())/1e3/n, "ms")
		add("rss_base", float64(base.RSS)/(1<<20), "MiB")
		add("rss_peak", float64(u.Peak)/(1<<20), "MiB")
		add("rss_peak_per_client", float64(u.Peak-base.RSS)/n/1024, "KiB")
		add("rss_after_per_client", float64(u.RSS-base.RSS)/n/1024, "KiB")
	}
	add("all_synced", elapsed.Seconds(), "s")
	add("resources_per_client", float64(f.resources.Load())/n, "")
	add("resource_bytes_per_client", float64(f.bytes.Load())/n, "B")
	add("bytes_per_client", float64(f.traffic.In.Load())/n, "B")
	add("bytes_up_per_client", float64(f.traffic.Out.Load())/n, "B")
	return base, r.result.Distribution("sync", r.rec.coldClients())
}

// source is what the source of changes has seen; nothing, if there is none.
func (r *run) source() (control.Stats, error) {
	if r.target.Source == nil {
		return control.Stats{}, nil
	}
	return r.target.Source.Stats()
}
