package fanout

import (
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// What a Hub holds can be saved, and loaded by the next relay process
// (RECON-19). To that process it is as if all clients had just left: the names linger,
// are asked for upstream with their versions, and are served to clients that come back.

// Disk is the part of a Hub that saves and loads what it holds.
type Disk struct{ hub *Hub }

// Disk returns the part of the Hub that saves and loads what it holds.
func (h *Hub) Disk() Disk { return Disk{h} }

// Keep makes the Hub give nothing up any more. Everything that is wanted when it is called, or
// later, stays until it can be saved, even if its clients leave.
func (d Disk) Keep() { d.hub.keepsAll.Store(true) }

// Saved is what a Hub holds on one lane. For a wildcard it is a complete set.
type Saved struct {
	Lane Lane
	// Origin is the origin that gave the resources their versions (RECON-8).
	Origin cache.Origin
	// Names are the subscribed names that lead to something; nil for a wildcard.
	Names     []string
	Resources []cache.Held
}

// Save returns what the Hub holds, without the types for which skip is true.
func (d Disk) Save(skip func(cache.TypeURL) bool) (lanes []Saved) {
	for x := range d.hub.types.locked() {
		if skip(x.url) {
			continue
		}
		if s := saveNamed(x); len(s.Resources) > 0 {
			lanes = append(lanes, s)
		}
		if x.wildcard.synced {
			s := Saved{Lane: Lane{x.url, true}}
			s.Origin, s.Resources = saved(&x.wildcard.Table)
			lanes = append(lanes, s)
		}
	}
	return lanes
}

func saveNamed(x *index) Saved {
	s := Saved{Lane: Lane{Type: x.url}}
	s.Origin, s.Resources = saved(&x.named.Table)
	s.Resources = slices.DeleteFunc(s.Resources, func(r cache.Held) bool { return x.loans.inherits(r.Name) })
	for id, name := range x.named.Interned() {
		if x.named.Led(id) == cache.Present && !x.loans.has(name) {
			s.Names = append(s.Names, name)
		}
	}
	return s
}

// saved leaves out the resources that must not be cached (VALID-5).
func saved(t *cache.Table) (origin cache.Origin, resources []cache.Held) {
	origin, all := t.Settled()
	resources = make([]cache.Held, 0, t.Len())
	for r := range all {
		if !r.DoNotCache {
			resources = append(resources, r)
		}
	}
	return origin, resources
}

// Load takes in what another Hub has saved. It must be called before the Hub is used.
func (d Disk) Load(lanes []Saved, now time.Time) {
	for _, s := range lanes {
		x := d.hub.types.of(d.hub, s.Lane.Type)
		x.mu.Lock()
		load(x, s, now)
		x.mu.Unlock()
	}
	d.hub.wanted.notify()
}

func load(x *index, s Saved, now time.Time) {
	names := s.Names
	if s.Lane.Wildcard {
		names = []string{Wildcard}
		x.wildcard.pinned, x.wildcard.synced, x.restored.set = true, true, true
	} else {
		x.restored.add(names)
	}
	if need := x.linger.len + len(names); need > x.linger.most {
		x.linger.most = need // all of it was subscribed to, and probably will be again
	}
	for _, name := range names {
		id := wildcardID
		if !s.Lane.Wildcard {
			id = x.named.Intern(name)
		}
		x.linger.add(id, now.Add(x.hub.limits.Load().Linger))
		x.changed(id)
	}
	loadAll(x, s, false, now)
	x.lane(s.Lane).Begin(s.Origin) // the rest is of the origin's last generation
	x.lane(s.Lane).Heard()
	loadAll(x, s, true, now)
}

func loadAll(x *index, s Saved, confirmed bool, now time.Time) {
	table := x.lane(s.Lane)
	for _, r := range s.Resources {
		expired := !r.Ends.IsZero() && !r.Ends.After(now) // TTL-2
		if r.Confirmed != confirmed || expired || !s.Lane.Wildcard && !x.covers(r.Resource) {
			continue
		}
		seq := x.next()
		table.Set(r.Resource, r.Upstream, seq)
		table.LeaseUntil(r.Name, r.Ends, seq)
	}
}

// Stale reports whether any lane has restored resources that upstream has not confirmed.
func (d Disk) Stale() bool {
	return d.hub.types.any(func(x *index) bool { return x.restored.any() })
}

// Progress shows whether there is something new to save: it differs from the last one.
type Progress struct {
	Position  cache.Seq // the group's latest change
	Complete  int       // number of complete wildcard sets
	Forgotten uint64    // number of names and wildcards given up so far
}

// Progress returns the Hub's current Progress.
func (d Disk) Progress() Progress {
	p := Progress{Position: cache.Seq(d.hub.seq.Load()), Forgotten: d.hub.forgotten.Load()}
	for x := range d.hub.types.locked() {
		if x.wildcard.synced {
			p.Complete++
		}
	}
	return p
}
