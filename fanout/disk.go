package fanout

import (
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// What a Hub holds can be saved, and loaded by the relay that comes after it
// (RECON-19). To that relay it is as if all clients had just left: the names linger,
// are asked for upstream with their versions, and are served to whoever comes back.

// Keep has everything stay that was wanted when it was called, or is from then on,
// whoever leaves and however long ago, so that it can be saved.
func (h *Hub) Keep() { h.kept.Store(true) }

// Saved is what a Hub holds on one lane; of a wildcard, the complete set.
type Saved struct {
	Lane Lane
	// Origin is whose versions they are (RECON-8).
	Origin cache.Origin
	// Names are those subscribed to that lead to something; not for a wildcard.
	Names     []string
	Resources []cache.Held
}

// Save is what the Hub holds of the types that skip does not name.
func (h *Hub) Save(skip func(cache.TypeURL) bool) (lanes []Saved) {
	for _, x := range h.all() {
		if skip(x.url) {
			continue
		}
		x.mu.Lock()
		if s := x.saveNamed(); len(s.Resources) > 0 {
			lanes = append(lanes, s)
		}
		if x.wildcard.held && x.wildcard.synced {
			s := Saved{Lane: Lane{x.url, true}}
			s.Origin, s.Resources = saved(&x.wildcard.Table)
			lanes = append(lanes, s)
		}
		x.mu.Unlock()
	}
	return lanes
}

func (x *index) saveNamed() Saved {
	s := Saved{Lane: Lane{Type: x.url}}
	s.Origin, s.Resources = saved(&x.named.Table)
	s.Resources = slices.DeleteFunc(s.Resources, func(r cache.Held) bool { return x.loans.inherits(r.Name) })
	for id := range cache.ID(x.named.Cap()) {
		if name := x.named.Name(id); x.named.Pinned(name) && x.named.Answer(id).State == cache.Present && !x.loans.has(name) {
			s.Names = append(s.Names, name)
		}
	}
	return s
}

// saved leaves out what is not to be kept (VALID-5).
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

// Load takes in what another Hub has saved. It is called before anybody uses the
// Hub.
func (h *Hub) Load(lanes []Saved, now time.Time) {
	for _, s := range lanes {
		x := h.index(s.Lane.Type)
		x.mu.Lock()
		x.load(s, now)
		x.mu.Unlock()
	}
	h.wanted.notify()
}

func (x *index) load(s Saved, now time.Time) {
	names := s.Names
	if s.Lane.Wildcard {
		names = []string{Wildcard}
		x.wildcard.held, x.wildcard.synced, x.restored.set = true, true, true
	} else {
		x.restored.add(names)
	}
	if need := x.linger.len + len(names); need > x.linger.most {
		x.linger.most = need // all of it was wanted, and is about to be again
	}
	for _, name := range names {
		id := wildcardID
		if !s.Lane.Wildcard {
			id = x.named.Intern(name)
		}
		x.linger.add(id, now.Add(x.hub.limits.Load().linger))
		x.changed(id)
	}
	x.loadAll(s, false, now)
	x.lane(s.Lane).Begin(s.Origin) // what follows is of the origin's last generation
	x.lane(s.Lane).Heard()
	x.loadAll(s, true, now)
}

func (x *index) loadAll(s Saved, confirmed bool, now time.Time) {
	table := x.lane(s.Lane)
	for _, r := range s.Resources {
		expired := !r.Ends.IsZero() && !r.Ends.After(now) // TTL-2
		if r.Confirmed != confirmed || expired || !s.Lane.Wildcard && !x.covers(r.Resource) {
			continue
		}
		seq := x.next()
		table.Set(r.Resource, r.Upstream, seq, nil)
		table.LeaseUntil(r.Name, r.Ends, seq)
	}
}

// Doubtful reports whether there is something that names of a type lead to and that was
// loaded, and upstream has not confirmed yet, or whose removal is held back (H-22).
func (h *Hub) Doubtful(t cache.TypeURL) (doubtful bool) {
	h.look(t, func(x *index) {
		doubtful = x.restored.names != nil || len(x.named.guard.held) > 0
	})
	return doubtful
}

// Stale reports whether there is anything of that kind on any lane.
func (h *Hub) Stale() bool {
	return slices.ContainsFunc(h.all(), func(x *index) bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return x.restored.any()
	})
}

// Progress tells whether there is anything new to save.
type Progress struct {
	Position  cache.Seq // the group's latest change
	Complete  int       // wildcards
	Forgotten uint64    // names that nobody wants any more, so far
}

// Progress is how far the Hub has come.
func (h *Hub) Progress() Progress {
	p := Progress{Position: cache.Seq(h.seq.Load()), Forgotten: h.forgotten.Load()}
	for _, x := range h.all() {
		x.mu.Lock()
		if x.wildcard.synced {
			p.Complete++
		}
		x.mu.Unlock()
	}
	return p
}
