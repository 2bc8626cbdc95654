package fanout

import "github.com/xds-relay/xds-relay/cache"

// answers finds what names lead to: what the lane of names has answered or, until it has, what the
// wildcard's set lends to them (WILD-11, WILD-16). Its IDs are those of the named Table.
type answers struct{ named, wildcard *cache.Table }

// of returns what a name leads to.
func (t answers) of(id cache.ID) cache.Answer {
	a := t.named.Answer(id)
	if b := t.borrowed(id); b.State == cache.Present {
		b.Error = a.Error
		return b
	}
	return a
}

// borrows reports whether the lane of names has no answer that outweighs a wildcard copy. A
// does-not-exist timer does not outweigh one: it is silence, not an answer (H-40).
func (t answers) borrows(id cache.ID) bool {
	if !t.named.Answered(id) {
		return true
	}
	return t.named.Led(id) == cache.Absent && t.named.Cause(id) == cache.Timer
}

// lent reports whether a name leads to the wildcard's copy.
func (t answers) lent(id cache.ID) bool {
	w, ok := t.wildcard.Find(t.named.Name(id))
	return ok && t.borrows(id) && t.wildcard.Led(w) == cache.Present
}

// borrowed returns the wildcard's answer for a name, if the name borrows.
func (t answers) borrowed(id cache.ID) (a cache.Answer) {
	if t.borrows(id) {
		a = t.inSet(id)
	}
	return a
}

// inSet returns the wildcard's answer for a name.
func (t answers) inSet(id cache.ID) (a cache.Answer) {
	if w, ok := t.wildcard.Find(t.named.Name(id)); ok {
		a = t.wildcard.Answer(w)
	}
	return a
}

// wasLent reports whether the wildcard has lent exactly this resource to its own name, so that
// clients that asked for the name have it already and need no second copy (DOWN-DELTA-14). It also
// returns since when. The clients that asked for an alias are not covered: their Subscriptions know
// what they were sent.
func (t answers) wasLent(r *cache.Resource) (since cache.Seq, was bool) {
	id, ok := t.named.Find(r.Name)
	if !ok {
		return 0, false
	}
	a := t.borrowed(id)
	return max(a.Seq, t.named.Vanished(id)), a.State == cache.Present && a.Resource.Name == r.Name && a.Resource.Version == r.Version && len(a.More) == 0
}

// limited reports whether a resource has a TTL on one of the lanes.
func (t answers) limited(name string) bool { return t.named.Expires(name) || t.wildcard.Expires(name) }
