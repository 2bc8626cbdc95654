//go:build linux

package load

import (
	"errors"
	"math"
	"time"

	"github.com/xds-relay/xds-relay/bench/internal/wire"
	"github.com/xds-relay/xds-relay/bench/internal/world"
)

// memory is W5: what a client costs while nothing happens, by resident memory and, where
// the server exports it, by live heap.
func memory(r *run) error {
	if _, err := r.prime(); err != nil {
		return err
	}
	base, err := r.usage()
	if err != nil {
		return err
	}
	heap, hasHeap, err := r.liveHeap()
	if err != nil {
		return err
	}
	all := &profile{delta: r.SotW == 0, subs: []*wire.Subscription{r.clusters(r.SotW == 0, nil)}, complete: r.World.Clusters}
	if err := r.connect(r.Clients, same(all)); err != nil {
		return err
	}
	if err := r.pause("settle", r.Settle); err != nil {
		return err
	}
	idle, err := r.usage()
	if err != nil {
		return err
	}
	r.idle(base, idle, r.Clients)
	if hasHeap {
		with, _, err := r.liveHeap()
		if err != nil {
			return err
		}
		r.result.Add("heap_per_client", (with-heap)/float64(r.Clients)/1024, "KiB")
	}
	return nil
}

// names is W5, too: what each name costs that a client subscribed to. It compares clients
// of one name with the same clients once they have asked for all the others.
func names(r *run) error {
	one := r.assignments(true, 1)
	if err := r.connect(r.Clients, same(&profile{delta: true, subs: []*wire.Subscription{one}, complete: 1})); err != nil {
		return err
	}
	if err := r.pause("settle", r.Settle); err != nil {
		return err
	}
	few, hasHeap, err := r.liveHeap()
	if err != nil {
		return err
	}
	before, err := r.usage()
	if err != nil {
		return err
	}
	rest := &wire.Subscription{TypeURL: world.Endpoint.TypeURL()}
	for i := 0; len(rest.Names) < min(r.Names, r.World.Assignments)-1; i++ {
		if name := r.world.Name(world.Endpoint, i); name != one.Names[0] {
			rest.Names = append(rest.Names, name)
		}
	}
	rest.Prepare(true)
	expected := r.fleet.resources.Load() + int64(r.Clients*len(rest.Names))
	r.progress("subscribe", 0)
	at := r.pace(r.ConnectRate)
	for i, c := range r.fleet.clients {
		if !until(r.ctx, at(i)) {
			return r.ctx.Err()
		}
		if err := c.stream.Send(rest.First(true, "")); err != nil {
			return err
		}
	}
	if err := r.fleet.await(r.ctx, "sent resources", &r.fleet.resources, int(expected), syncWithin); err != nil {
		return err
	}
	if err := r.pause("settle", r.Settle); err != nil {
		return err
	}
	pairs := float64(r.Clients * len(rest.Names))
	after, err := r.usage()
	if err != nil {
		return err
	}
	if r.target.Pid != 0 {
		r.result.Add("rss_per_client_and_name", float64(after.RSS-before.RSS)/pairs, "B")
	}
	r.result.Add("names_per_client", float64(len(rest.Names)+1), "")
	if !hasHeap {
		return nil
	}
	many, _, err := r.liveHeap()
	if err != nil {
		return err
	}
	r.result.Add("heap_per_client_and_name", (many-few)/pairs, "B")
	return nil
}

// liveHeap is what the server's heap holds right after a garbage collection; ok is false
// if it exports no metrics of a Go program. Asking makes garbage, so that a collection comes.
func (r *run) liveHeap() (bytes float64, ok bool, err error) {
	const collections, limit = 2, 3 * time.Minute
	bytes = math.Inf(1)
	first, begin := -1.0, time.Now()
	for time.Since(begin) < limit {
		m, err := r.metrics()
		if err != nil || m == nil {
			return 0, false, err
		}
		count, collects := m["go_gc_duration_seconds_count"]
		if !collects {
			return 0, false, nil
		}
		if first < 0 {
			first = count
		}
		if count > first {
			bytes = min(bytes, m["go_memstats_heap_alloc_bytes"])
		}
		if live, ok := m["go_gc_heap_live_bytes"]; ok {
			bytes = live // it says so itself
		}
		if count >= first+collections {
			return bytes, true, nil
		}
		if err := r.ctx.Err(); err != nil {
			return 0, false, err
		}
		r.progress("garbage collection", (count-first)/collections)
	}
	return 0, false, errors.New("the server does not collect garbage within 3 minutes")
}
