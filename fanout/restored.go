package fanout

import (
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// restored is what was loaded from disk of a type and upstream has not confirmed yet (RECON-19). It
// may lack the last changes before the process ended. So until upstream confirms it, only clients
// that have nothing of their own are sent it: a client that came with a version of its own keeps
// that, and nothing is removed because a snapshot lacks it (G4).
type restored struct {
	x     *index
	set   bool            // the wildcard's set was loaded
	names map[string]bool // names that were loaded; nil: all are confirmed
	// What is restored keeps its age: asOf has that of each of names, and setAsOf that of the set.
	asOf    map[string]time.Time
	setAsOf time.Time
}

func (r *restored) add(names []string, asOf time.Time) {
	if r.names == nil {
		r.names, r.asOf = make(map[string]bool, len(names)), make(map[string]time.Time, len(names))
	}
	for _, name := range names {
		r.names[name], r.asOf[name] = true, asOf
	}
}

// addSet notes that the wildcard's set was loaded.
func (r *restored) addSet(asOf time.Time) { r.set, r.setAsOf = true, asOf }

// age returns as of when what a name leads to is known; zero: it is not restored.
func (r *restored) age(name string) time.Time {
	if len(r.names) == 0 || r.names[name] {
		return r.asOf[name]
	}
	id, _ := r.x.named.Find(name)
	for _, of := range r.x.named.Answer(id).Resources() {
		for other := range of.Names() {
			if r.names[other] {
				return r.asOf[other]
			}
		}
	}
	return time.Time{}
}

// setAge returns as of when the wildcard's set is known; zero: it is not restored.
func (r *restored) setAge() time.Time {
	if !r.set {
		return time.Time{}
	}
	return r.setAsOf
}

func (r *restored) any() bool { return r.set || r.names != nil }

// resource reports whether one of a resource's names is restored.
func (r *restored) resource(of *cache.Resource) bool {
	return len(r.names) > 0 && goesBy(of, func(name string) bool { return r.names[name] })
}

// leads reports whether a name leads to something restored.
func (r *restored) leads(id cache.ID) bool {
	x := r.x
	if len(r.names) > 0 {
		if r.names[x.named.Name(id)] && x.answers.of(id).State == cache.Present {
			return true
		}
		// It may have been loaded under another of its names.
		if own := x.named.Answer(id).Resource; own != nil && r.resource(own) {
			return true
		}
	}
	return r.set && x.answers.fallsBack(id)
}

// observe confirms the names that an Update speaks of. Silence confirms none that leads to something
// which the same stream has removed, and the guard holds back.
func (r *restored) observe(u *cache.Update) {
	for _, s := range u.Set {
		for name := range s.Names() {
			r.confirm(name)
		}
	}
	named := &r.x.named
	for _, name := range slices.Concat(u.Missing, u.Unanswered) {
		id, ok := named.Find(name)
		removed := ok && slices.ContainsFunc(named.Answer(id).Resources(), func(of *cache.Resource) bool {
			h, held := named.guard.held[of.Name]
			return held && h.stream == u.Stream
		})
		if !removed && !named.doubts.since(name, u.Stream) && named.agreed(name) {
			r.confirm(name)
		}
	}
}

// agreed reports whether upstream has confirmed what a name leads to, if it leads to something.
func (n *namedLane) agreed(name string) bool {
	return n.Announced(name) || !n.Has(name) && len(n.UnannouncedAnswers(name)) == 0
}

// confirm notes that upstream has announced or removed what a name leads to, or has been shown its
// version and been silent about it for long enough. Clients that were kept waiting because they came
// with a version of their own are marked.
func (r *restored) confirm(name string) {
	if !r.names[name] {
		return
	}
	delete(r.asOf, name)
	if delete(r.names, name); len(r.names) == 0 {
		r.confirmNames()
	}
	if id, ok := r.x.named.Find(name); ok {
		r.x.marks.mark(id, recheck)
	}
}

// giveUp notes that a name is given up. What it led to stays restored if another name keeps it.
func (r *restored) giveUp(name string, led []*cache.Resource) {
	if !r.names[name] {
		return
	}
	for _, of := range led {
		for other := range of.Names() {
			if other != name && r.x.desiredName(other) {
				r.names[other], r.asOf[other] = true, r.asOf[name]
			}
		}
	}
	r.confirm(name)
}

// confirmNames notes that upstream has nothing more to say about the names that were loaded.
func (r *restored) confirmNames() {
	if r.names != nil {
		r.names, r.asOf = nil, nil
		r.x.named.lookAgain()
	}
}

// confirmSet does the same for the wildcard's set. Clients that ask by name are marked, too, since
// what they resolve to may be in the set.
func (r *restored) confirmSet() {
	if r.set {
		r.set = false
		r.x.wildcard.lookAgain()
		r.x.named.lookAgain()
	}
}

// AnyRestored reports whether anything of the type may be restored.
func (v View) AnyRestored() bool { return v.x.restored.any() }

// Restored reports whether a subscribed name leads to something restored.
func (v View) Restored(id cache.ID) bool { return v.x.restored.leads(id) }
