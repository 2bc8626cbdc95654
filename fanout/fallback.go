package fanout

import "github.com/xds-relay/xds-relay/cache"

// A name whose own lane has said nothing resolves to the wildcard's member of that name, if there is
// one (answers). The member is read where it is, and is never moved: when the wildcard is given up,
// the name has no answer, and upstream is asked for it again (WILD-11).

// markFallback marks the name of a member of the wildcard's set, if it resolves to that.
func (x *index) markFallback(member string) {
	if id, ok := x.named.Find(member); ok && x.desired(id) && x.answers.open(id) {
		x.markNamed([]cache.ID{id})
	}
}

// endFallbacks ends those that the wildcard, which is given up, has given to names. What upstream was
// silent about meanwhile it may have sent with the set, so its silence begins anew.
func (x *index) endFallbacks() {
	for id, name := range x.named.Interned() {
		if !x.answers.fallsBack(id) {
			continue
		}
		if x.interest.wants(id) {
			x.named.again[name] = struct{}{}
			x.changed(id).again = true
			if x.named.State(id) == cache.Absent { // by silence
				x.named.Unset(id, x.next())
			}
		}
		x.markNamed([]cache.ID{id})
	}
}

// Answer returns what a subscribed name resolves to.
func (v View) Answer(id cache.ID) cache.Answer {
	if v.s.sotw {
		return v.x.answers.bare(id)
	}
	return v.x.answers.of(id)
}

// Open reports whether the lane of names has not answered a subscribed name, so that a fallback may end before the
// client is sent it.
func (v View) Open(id cache.ID) bool { return v.x.answers.open(id) }

// Unanswered reports whether it is not yet known what a subscribed name resolves to.
func (v View) Unanswered(id cache.ID) bool { return v.Answer(id).State == cache.Unknown }

// owns reports whether one of the client's names leads to a resource of this name on the lane of
// names.
func (s *Subscription) owns(name string) bool {
	r := s.index.named.Bearer(name)
	if r == nil {
		return false
	}
	if s.sotw {
		_, has := s.view().Lookup(name)
		return has
	}
	return goesBy(r, func(asked string) bool {
		_, has := s.view().Lookup(asked)
		return has
	})
}
