package fanout

import (
	"slices"

	"github.com/xds-relay/xds-relay/cache"
)

// What has gone from the wildcard's set is remembered for its readers: those who hold
// members of it and are to be told of each that goes, by name. A reader says how far it
// has been told. Who has been told nothing yet, who compares whole sets, and who only
// asks whether the set is complete, is no reader (H-42).

// readers are those of one type.
type readers struct {
	x       *index
	slowest *Subscription // when it was last looked for; it had
	pruned  cache.Seq     // been told up to here
}

// Passed says that the client has been told of what is gone from the wildcard's set up
// to a position. It is a reader from then on, until it gives the wildcard up.
func (v Set) Passed(to cache.Seq) { v.s.pass(to) }

func (s *Subscription) pass(to cache.Seq) {
	if s.wildcard && !s.closed && (!s.reads || s.passed != to) {
		s.reads, s.passed = true, to
		s.index.readers.prune()
	}
}

// Forgotten is the position up to which it is forgotten what went from the wildcard's set.
func (v Set) Forgotten() cache.Seq { return v.x.readers.pruned }

// leave notes that one does not subscribe to the wildcard any more.
func (r *readers) leave(s *Subscription) {
	if r.slowest == s {
		r.slowest = nil
	}
	r.prune()
}

// prune forgets what every reader has been told of. While the slowest has not moved
// there is nothing to find, so that one slow client costs the others no search.
func (r *readers) prune() {
	x := r.x
	if x.wildcard.Tombstones() <= x.hub.bounds.Tombstones(x.wildcard.Len()) {
		return
	}
	if s := r.slowest; s != nil && s.reads && s.passed == r.pruned {
		return
	}
	before := r.pruned
	r.slowest, r.pruned = nil, x.latest
	for _, s := range slices.Backward(x.interest.of(wildcardID)) { // the last, since they are told in their order
		if s.reads && s.passed < r.pruned {
			r.slowest, r.pruned = s, s.passed
		}
	}
	if r.pruned > before {
		x.wildcard.Prune(r.pruned)
	}
}
