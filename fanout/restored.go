package fanout

import (
	"slices"

	"github.com/xds-relay/xds-relay/cache"
)

// restored is what of a type was loaded from disk, and is not confirmed by upstream yet (RECON-19). It
// may be out of date, by what changed between the last write and the end. So until upstream has
// spoken it is given only to clients that have nothing themselves: one that came with a version of
// its own keeps that, and nobody is told that something does not exist because a snapshot lacks it
// (G4).
type restored struct {
	x     *index
	set   bool                // the wildcard's
	names map[string]struct{} // nil: all are confirmed
	// awaited are the names that nobody has come back for. They linger though they become
	// Absent: who had them is to be told at once, not after a silence (UP-7).
	awaited map[string]struct{}
}

// add notes names that were loaded.
func (r *restored) add(names []string) {
	r.names, r.awaited = make(map[string]struct{}, len(names)), make(map[string]struct{}, len(names))
	for _, name := range names {
		r.names[name], r.awaited[name] = struct{}{}, struct{}{}
	}
}

// any: something was loaded.
func (r *restored) any() bool { return r.set || r.names != nil }

// has: upstream has not spoken of a name that was loaded.
func (r *restored) has(name string) bool {
	_, loaded := r.names[name]
	return loaded
}

// awaits: nobody has come back for a name.
func (r *restored) awaits(name string) bool {
	_, awaited := r.awaited[name]
	return awaited
}

// resource: upstream has not spoken of any of the names of a resource.
func (r *restored) resource(of *cache.Resource) bool {
	return goesBy(of, func(name string) bool { return r.has(name) || r.x.loans.inherited[name] })
}

// leads: upstream has not spoken of what a name leads to.
func (r *restored) leads(id cache.ID) bool {
	x := r.x
	if len(r.names)+len(x.loans.inherited) > 0 {
		if r.has(x.named.Name(id)) {
			return true
		}
		// It may have been loaded under another of its names, or with the wildcard.
		if own := x.named.Answer(id).Resource; own != nil && r.resource(own) {
			return true
		}
	}
	return r.set && x.answers.lent(id)
}

// hears notes that upstream has spoken of these names: what they lead to is not what
// was loaded any more.
func (r *restored) hears(u *cache.Update) {
	if r.names == nil {
		return
	}
	for _, s := range u.Set {
		for name := range names(s.Resource) {
			r.confirm(name)
		}
	}
	for _, name := range u.Removed {
		delete(r.names, name)
	}
	named := &r.x.named
	for _, name := range slices.Concat(u.Missing, u.Unanswered) {
		if !named.doubts.since(name, u.Stream) && (named.Confirmed(name) || !named.Has(name)) {
			r.confirm(name)
		}
	}
	if len(r.names) == 0 {
		r.confirmNames()
	}
}

// confirm: upstream has announced what a name leads to, changed or not, or was shown its version and
// has said nothing of it for long enough. Clients that were kept waiting with a version of their own
// look at it now.
func (r *restored) confirm(name string) {
	if !r.has(name) {
		return
	}
	delete(r.names, name)
	if id, ok := r.x.named.Find(name); ok {
		r.x.marks.mark(id, again)
	}
}

// giveUp notes that a name is given up. What it led to, and was loaded, is no less so when
// another name keeps it.
func (r *restored) giveUp(name string, led []*cache.Resource) {
	if delete(r.awaited, name); !r.has(name) {
		return
	}
	for _, of := range led {
		for other := range names(of) {
			if other != name && r.x.desiredName(other) {
				r.names[other] = struct{}{}
			}
		}
	}
	if delete(r.names, name); len(r.names) == 0 {
		r.confirmNames() // nothing that was loaded is left
	}
}

// confirmNames: upstream has said all it had to say about the names that were loaded. Clients that
// were kept waiting with a version of their own are judged now.
func (r *restored) confirmNames() {
	if r.names != nil {
		r.names = nil
		r.x.named.lookAgain()
	}
}

// confirmSet is the same of the wildcard's set. Those who ask by name may have been served from it
// until just now.
func (r *restored) confirmSet() {
	if r.set {
		r.set = false
		r.x.wildcard.lookAgain()
		r.x.named.lookAgain()
	}
}

// AnyRestored: something of the type may have been loaded, and upstream has not spoken of it yet.
func (v View) AnyRestored() bool { return v.x.restored.any() || len(v.x.loans.inherited) > 0 }

// Restored: what a subscribed name leads to was loaded, and upstream has not
// spoken of it yet.
func (v View) Restored(id cache.ID) bool { return v.x.restored.leads(id) }
