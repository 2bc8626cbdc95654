package fanout

import (
	"slices"

	"github.com/xds-relay/xds-relay/cache"
)

// A removal from the wildcard's set is remembered for the set's readers: the clients that hold
// members and are sent each removal by name. A reader says how far it has been sent them. A
// client that was sent nothing yet, that compares whole sets, or that only
// asks whether the set is complete, is no reader (H-42).

// readers knows how far the readers of one type have been sent removals.
type readers struct {
	x       *index
	slowest *Subscription // the slowest reader when prune last looked for it
	pruned  cache.Seq     // removals up to here are forgotten
}

// Passed notes that the client has been sent all removals from the wildcard's set up to a position.
// It is a reader from then on, until it gives the wildcard up.
func (v Set) Passed(to cache.Seq) {
	if s := v.s; s.wildcard && (!s.reads || s.passed != to) {
		s.reads, s.passed = true, to
		v.x.readers.prune()
	}
}

// Forgotten returns the position up to which removals from the wildcard's set are forgotten.
func (v Set) Forgotten() cache.Seq { return v.x.readers.pruned }

// prune forgets the removals that every reader has been sent. While the slowest reader has not
// moved there is nothing to forget, so one slow client does not make the others search.
func (r *readers) prune() {
	x := r.x
	if x.wildcard.Tombstones() <= x.hub.config.Bounds.Tombstones(x.wildcard.Len()) {
		return
	}
	if s := r.slowest; s != nil && s.reads && s.passed == r.pruned {
		return
	}
	before := r.pruned
	r.slowest, r.pruned = nil, x.latest
	for _, s := range slices.Backward(x.interest.of(wildcardID)) { // from the last, since they are sent to in order
		if s.reads && s.passed < r.pruned {
			r.slowest, r.pruned = s, s.passed
		}
	}
	if r.pruned > before {
		x.wildcard.Prune(r.pruned)
	}
}

// Unread notes that the client no longer depends on remembered removals.
func (v Set) Unread() {
	v.s.reads = false
	v.x.readers.prune()
}
