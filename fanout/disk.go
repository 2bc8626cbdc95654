package fanout

import (
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// What a Hub holds can be saved, and loaded by the relay that comes after it
// (RECON-19). To that relay it is as if all clients had just left: the names linger,
// are asked for upstream with their versions, and are served to whoever comes back.

// Disk is a Hub for those who save and load what it holds.
type Disk struct{ hub *Hub }

// Disk is the Hub for those who save and load what it holds.
func (h *Hub) Disk() Disk { return Disk{h} }

// Keep has everything stay that was wanted when it was called, or is from then on,
// whoever leaves and however long ago, so that it can be saved.
func (d Disk) Keep() { d.hub.kept.Store(true) }

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
func (d Disk) Save(skip func(cache.TypeURL) bool) (lanes []Saved) {
	for x := range d.hub.types.locked() {
		if skip(x.url) {
			continue
		}
		if s := saveNamed(x); len(s.Resources) > 0 {
			lanes = append(lanes, s)
		}
		if x.wildcard.held && x.wildcard.synced {
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
	loadAll(x, s, false, now)
	x.lane(s.Lane).Begin(s.Origin) // what follows is of the origin's last generation
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
		table.Set(r.Resource, r.Upstream, seq, nil)
		table.LeaseUntil(r.Name, r.Ends, seq)
	}
}

// Stale reports whether there is anything of that kind on any lane.
func (d Disk) Stale() bool {
	for x := range d.hub.types.locked() {
		if x.restored.any() {
			return true
		}
	}
	return false
}

// Progress tells whether there is anything new to save.
type Progress struct {
	Position  cache.Seq // the group's latest change
	Complete  int       // wildcards
	Forgotten uint64    // names that nobody wants any more, so far
}

// Progress is how far the Hub has come.
func (d Disk) Progress() Progress {
	p := Progress{Position: cache.Seq(d.hub.seq.Load()), Forgotten: d.hub.forgotten.Load()}
	for x := range d.hub.types.locked() {
		if x.wildcard.synced {
			p.Complete++
		}
	}
	return p
}
