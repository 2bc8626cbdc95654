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

// endFallbacks has upstream asked again for the names that resolved to members of the set, whose wildcard is given
// up. It may have been silent about them because it had sent them with the set, so only silence from now on counts.
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
