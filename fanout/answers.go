package fanout

import "github.com/xds-relay/xds-relay/cache"

// answers finds what names resolve to: what the lane of names has answered or, until it has, the
// wildcard's member of that name (WILD-11, WILD-16). Its IDs are those of the named Table.
type answers struct{ named, wildcard *cache.Table }

// of returns what a name resolves to.
func (t answers) of(id cache.ID) cache.Answer { return t.orFallback(id, t.named.Answer(id)) }

// bare is of without aliases, which SotW does not have: a resource under another name is no answer
// to a SotW client (NAME-3).
func (t answers) bare(id cache.ID) cache.Answer { return t.orFallback(id, t.named.Bare(id)) }

func (t answers) orFallback(id cache.ID, a cache.Answer) cache.Answer {
	if r, since := t.fallback(id); r != nil {
		a.State, a.Cause, a.Resource, a.Seq = cache.Present, 0, r, since
	}
	return a
}

// open reports whether the lane of names has no answer that outweighs a member of the wildcard's
// set. A does-not-exist timer does not outweigh one: it is silence, not an answer (H-40).
func (t answers) open(id cache.ID) bool {
	if !t.named.Answered(id) {
		return true
	}
	return t.named.Led(id) == cache.Absent && t.named.Cause(id) == cache.Timer
}

// fallback returns the wildcard's member that a name resolves to because its own lane says nothing,
// and since when it does; nil: there is none.
func (t answers) fallback(id cache.ID) (*cache.Resource, cache.Seq) {
	m, ok := t.wildcard.Find(t.named.Name(id))
	if !ok || !t.open(id) {
		return nil, 0
	}
	// The clients' last copy from the lane of names vanished then, even if the member changed earlier.
	return t.wildcard.Own(m), max(t.wildcard.Seq(m), t.named.Vanished(id))
}

// fallsBack reports whether a name resolves to a member of the wildcard's set.
func (t answers) fallsBack(id cache.ID) bool {
	r, _ := t.fallback(id)
	return r != nil
}

// same reports whether a resource's own name resolves to exactly this already, as a fallback: clients
// that asked for the name have it and need no second copy (DOWN-DELTA-14). It also returns since when.
func (t answers) same(r *cache.Resource) (since cache.Seq, same bool) {
	id, ok := t.named.Find(r.Name)
	if !ok {
		return 0, false
	}
	before, since := t.fallback(id)
	return since, before != nil && before.Version == r.Version
}

// limited reports whether a resource has a TTL on one of the lanes.
func (t answers) limited(name string) bool { return t.named.Expires(name) || t.wildcard.Expires(name) }

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
