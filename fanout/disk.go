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
func (d Disk) Keep() {
	d.hub.keepsAll.Store(true)
	for range d.hub.types.locked() { // what is noted in the agenda changes
		continue
	}
}

// Saved is what a Hub holds, or has given up, on one lane. For a wildcard it is a complete set.
type Saved struct {
	Lane Lane
	// Origin is the origin that gave the resources their versions (RECON-8).
	Origin cache.Origin
	// AsOf is the age of what is restored; zero: it is not restored.
	AsOf time.Time
	// Names are the subscribed names that lead to something; nil for a wildcard.
	Names []string
	// Gone are names that are known to lead to nothing: what an older file says of them is not
	// true any more. They are only for a Hub that keeps what is unwanted.
	Gone      []string
	Resources []cache.Held
}

// Save returns what the Hub holds, without the types for which skip is true. What is restored, and
// of different ages, is apart.
func (d Disk) Save(skip func(cache.TypeURL) bool) (lanes []Saved) {
	for x := range d.hub.types.locked() {
		if skip(x.url) {
			continue
		}
		lanes = append(lanes, saveNamed(x)...)
		if x.wildcard.isFor(false) {
			lanes = append(lanes, saveSet(x))
		}
	}
	return lanes
}

func saveSet(x *index) Saved {
	s := Saved{Lane: Lane{x.url, true}}
	if x.wildcard.restored {
		s.AsOf = x.wildcard.asOf
	}
	s.Origin, s.Resources = saved(&x.wildcard.Table)
	return s
}

func saveNamed(x *index) []Saved {
	origin, resources := saved(&x.named.Table)
	lanes := parts{lane: Lane{Type: x.url}}
	for id, name := range x.named.Interned() {
		switch state := x.named.Led(id); {
		case state == cache.Present:
			for _, r := range x.named.Answer(id).Resources() {
				asOf, _ := x.named.Age(r.Name)
				part := lanes.of(origin, asOf)
				if n := len(part.Names); n == 0 || part.Names[n-1] != name {
					part.Names = append(part.Names, name)
				}
			}
		case state == cache.Absent && x.hub.config.KeepUnwanted:
			part := lanes.of(origin, time.Time{})
			part.Gone = append(part.Gone, name)
		}
	}
	for _, r := range resources {
		asOf, _ := x.named.Age(r.Name)
		part := lanes.of(origin, asOf)
		part.Resources = append(part.Resources, r)
	}
	return slices.DeleteFunc(lanes.all, func(s Saved) bool { return len(s.Resources)+len(s.Gone) == 0 })
}

// parts are what is saved of a lane, apart by origin and age.
type parts struct {
	lane Lane
	all  []Saved
	at   map[part]int // in all
}

// part tells the parts of a lane apart.
type part struct {
	origin cache.Origin
	asOf   int64 // Unix time in nanoseconds
}

func (p *parts) of(origin cache.Origin, asOf time.Time) *Saved {
	key := part{origin, asOf.UnixNano()}
	i, known := p.at[key]
	if !known {
		i, p.all = len(p.all), append(p.all, Saved{Lane: p.lane, Origin: origin, AsOf: asOf})
		if p.at == nil {
			p.at = make(map[part]int)
		}
		p.at[key] = i
	}
	return &p.all[i]
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
		x.note()
		x.mu.Unlock()
	}
	d.hub.wanted.notify()
}

func load(x *index, s Saved, now time.Time) {
	names := s.Names
	if s.Lane.Wildcard {
		names = []string{Wildcard}
		x.wildcard.pinned, x.wildcard.synced = true, true
		x.wildcard.restored, x.wildcard.asOf = true, s.AsOf
	}
	for _, name := range names {
		id := wildcardID
		if !s.Lane.Wildcard {
			id = x.named.Intern(name)
		}
		x.linger.add(id, stay{now.Add(x.hub.limits.Load().Linger), true})
		x.changed(id)
	}
	// All of it was subscribed to, and probably will be again.
	x.linger.most = max(x.linger.most, x.linger.len)
	table := x.lane(s.Lane)
	if table.Origin() != s.Origin {
		table.Begin(s.Origin)
		table.Heard()
	}
	for _, r := range s.Resources {
		if s.Lane.Wildcard || x.covers(r.Resource) {
			table.take(r, now)
		}
		if !s.Lane.Wildcard {
			table.Restore(r.Name, s.AsOf)
		}
	}
	if s.AsOf.IsZero() {
		s.AsOf = now
	}
	x.hub.arrivals.note(x.latest, s.AsOf)
}

// take puts a resource from disk into the Table, unless its TTL has ended (TTL-2).
// It returns the names whose answers have changed.
func (l *lane) take(r cache.Held, now time.Time) (touched []cache.ID) {
	if !r.Ends.IsZero() && !r.Ends.After(now) {
		return nil
	}
	seq := l.x.next()
	touched, _ = l.Set(r.Resource, r.Upstream, seq)
	l.LeaseUntil(r.Name, r.Ends, seq)
	if !r.Announced {
		l.Unannounce(r.Name)
	}
	return touched
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
		if x.wildcard.isFor(false) {
			p.Complete++
		}
	}
	return p
}
