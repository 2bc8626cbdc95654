package fanout

import (
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// What a Hub holds can be saved, and loaded by the relay that comes after it
// (RECON-19). To that relay it is as if all clients had just left: the names linger,
// are asked for upstream with their versions, and are served to whoever comes back.
//
// But it may be out of date, by what changed between the last write and the end.
// So until upstream has spoken it is given only to clients that have nothing
// themselves: one that came with a version of its own keeps that, and nobody is told
// that something does not exist because a snapshot lacks it (G4).

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

// restored is what was loaded on a lane and is not confirmed by upstream yet.
type restored struct {
	set   bool // the wildcard's
	names map[string]struct{}
	// awaited are the names that nobody has come back for. They linger though they become
	// Absent: who had them is to be told at once, not after a silence (UP-7).
	awaited map[string]struct{}
	// said: upstream has said all there is. What was loaded is confirmed when none of that is
	// in doubt (ERR-10).
	said bool
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
		x.wildcard.held, x.wildcard.synced, x.wildcard.restored.set = true, true, true
	} else {
		x.named.restored.names = make(map[string]struct{}, len(names))
		x.named.restored.awaited = make(map[string]struct{}, len(names))
	}
	if need := x.linger.len + len(names); need > x.linger.most {
		x.linger.most = need // all of it was wanted, and is about to be again
	}
	for _, name := range names {
		id := wildcardID
		if !s.Lane.Wildcard {
			id = x.named.Intern(name)
			x.named.restored.names[name], x.named.restored.awaited[name] = struct{}{}, struct{}{}
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
		doubtful = x.named.restored.names != nil || len(x.named.guard.held) > 0
	})
	return doubtful
}

// Stale reports whether there is anything of that kind on any lane.
func (h *Hub) Stale() bool {
	return slices.ContainsFunc(h.all(), func(x *index) bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return x.isWarm()
	})
}

// any: something was.
func (r *restored) any() bool { return r.set || r.names != nil }

func (x *index) isWarm() bool { return x.wildcard.restored.any() || x.named.restored.any() }

// loaded: upstream has not spoken of any of the names of a resource.
func (x *index) loaded(r *cache.Resource) bool {
	for name := range names(r) {
		if _, loaded := x.named.restored.names[name]; loaded || x.loans.inherited[name] {
			return true
		}
	}
	return false
}

// heard notes that upstream has spoken of these names: what they lead to is not what
// was loaded any more.
func (x *index) heard(u *cache.Update) {
	if x.named.restored.names == nil {
		return
	}
	for _, r := range u.Set {
		for name := range names(r.Resource) {
			x.confirmName(name)
		}
	}
	for _, name := range u.Removed {
		delete(x.named.restored.names, name)
	}
	for _, name := range slices.Concat(u.Missing, u.Unanswered) {
		if _, loaded := x.named.restored.names[name]; loaded && !x.named.doubts.since(name, u.Stream) && (x.named.Confirmed(name) || !x.named.Has(name)) {
			x.confirmName(name)
		}
	}
	if len(x.named.restored.names) == 0 {
		x.named.confirm()
	}
}

// confirmName: upstream has announced what a name leads to, changed or not, or was shown its version and
// has said nothing of it for long enough. Clients that were kept waiting with a version of their own
// look at it now.
func (x *index) confirmName(name string) {
	if _, loaded := x.named.restored.names[name]; !loaded {
		return
	}
	delete(x.named.restored.names, name)
	if id, ok := x.named.Find(name); ok {
		x.marks.mark(id, again)
	}
}

// cool notes that a name is given up. What it led to, and was loaded, is no less so when
// another name keeps it.
func (x *index) cool(name string, led []*cache.Resource) {
	if _, loaded := x.named.restored.names[name]; !loaded {
		return
	}
	for _, r := range led {
		for other := range names(r) {
			if other != name && x.desiredName(other) {
				x.named.restored.names[other] = struct{}{}
			}
		}
	}
	if delete(x.named.restored.names, name); len(x.named.restored.names) == 0 {
		x.named.confirm() // nothing that was loaded is left
	}
}

// allSaid notes that upstream has said all there is on a lane.
func (l *lane) allSaid() { l.restored.said = l.restored.any() }

// conclude confirms a lane on which all was said and nothing is in doubt.
func (l *lane) conclude() {
	if l.restored.said && !l.doubts.any() {
		l.restored.said = false
		l.confirm()
	}
}

// confirm: upstream has said all it had to say about what was loaded on a lane.
// Clients that were kept waiting with a version of their own are judged now: those who
// ask by name, too, who may have been served from the wildcard's copy until just now.
func (l *lane) confirm() {
	if !l.restored.any() {
		return
	}
	l.restored.set, l.restored.names = false, nil
	l.lookAgain()
	if l.wildcard {
		l.x.named.lookAgain()
	}
}

// Warms: something of the type may have been loaded, and upstream has not spoken of it yet.
func (v View) Warms() bool { return v.x.isWarm() || len(v.x.loans.inherited) > 0 }

// Warm: what a subscribed name leads to was loaded, and upstream has not
// spoken of it yet.
func (v View) Warm(id cache.ID) bool { return v.x.restored(id) }

func (x *index) restored(id cache.ID) bool {
	if len(x.named.restored.names)+len(x.loans.inherited) > 0 {
		if _, loaded := x.named.restored.names[x.named.Name(id)]; loaded {
			return true
		}
		// It may have been loaded under another of its names, or with the wildcard.
		if r := x.named.Answer(id).Resource; r != nil && x.loaded(r) {
			return true
		}
	}
	return x.wildcard.restored.set && x.answers.borrows(id) && x.answers.of(id).State == cache.Present
}

// WarmSet: so was the wildcard's set.
func (v View) WarmSet() bool { return v.x.wildcard.restored.set }

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
