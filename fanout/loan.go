package fanout

import (
	"slices"

	"github.com/xds-relay/xds-relay/cache"
)

// What the wildcard's copy lends to names whose own lane has not answered
// (WILD-11, WILD-16).

// lentTo appends the names that a member of the wildcard's set is lent to.
func (x *index) lentTo(member string, to []cache.ID) []cache.ID {
	w, ok := x.wildcard.Find(member)
	if !ok || x.wildcard.Own(w) == nil {
		return to
	}
	for name := range names(x.wildcard.Own(w)) {
		if id, ok := x.named.Find(name); ok && x.wants(id) && x.borrows(id) && !slices.Contains(to, id) {
			to = append(to, id)
		}
	}
	return to
}

// borrows: a name's own lane gives no answer that outweighs a wildcard copy. A
// does-not-exist timer does not: it is silence, not an answer (H-40).
func (x *index) borrows(id cache.ID) bool {
	if !x.named.Answered(id) {
		return true
	}
	a := x.named.Answer(id)
	return a.State == cache.Absent && a.Cause == cache.Timer
}

// loan is what the wildcard lends to a name, if anything.
func (x *index) loan(id cache.ID) (a cache.Answer) {
	if x.borrows(id) {
		if w, ok := x.wildcard.Find(x.named.Name(id)); ok {
			a = x.wildcard.Answer(w)
		}
	}
	return a
}

// Answer is what a subscribed name leads to. Nothing is lent to it of what another of
// the client's names has on its own lane: a client takes a resource from one Table,
// or it would go back and forth between two (WILD-16).
func (v View) Answer(id cache.ID) cache.Answer {
	if b := v.x.loan(id); b.State == cache.Present && v.owns(b.Resource.Name) {
		return v.x.named.Answer(id)
	}
	return v.x.answer(id)
}

// owns: one of the client's names has led to a resource on its own lane.
func (v View) owns(name string) bool {
	id, ok := v.x.named.Find(name)
	return ok && v.x.named.Own(id) != nil && goesBy(v.x.named.Own(id), func(asked string) bool {
		_, has := v.Lookup(asked)
		return has
	})
}

// borrowers are the names whose subscribers have been given exactly this resource
// from the wildcard's copy, and need not be told again (DOWN-DELTA-14).
func (x *index) borrowers(r *cache.Resource) (told []cache.ID) {
	if x.wildcard.Len() == 0 {
		return nil
	}
	for name := range names(r) {
		id, ok := x.named.Find(name)
		if !ok || !x.borrows(id) {
			continue
		}
		a := x.answer(id)
		if a.State == cache.Present && a.Resource.Name == r.Name && a.Resource.Version == r.Version && len(a.More) == 0 {
			told = append(told, id)
		}
	}
	return told
}
