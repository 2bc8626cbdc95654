package fanout

import (
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// Which names and wildcards the group needs from upstream.

// desired reports whether a name or the wildcard is needed: a client subscribes to it, it lingers,
// or the Hub gives nothing up any more.
func (x *index) desired(id cache.ID) bool {
	if x.hub.keepsAll.Load() {
		if id == wildcardID {
			return x.wildcard.pinned
		}
		return x.named.Pinned(x.named.Name(id))
	}
	return x.linger.has(id) || x.interest.wants(id)
}

// desiredName is desired by name.
func (x *index) desiredName(name string) bool {
	id, ok := x.named.Find(name)
	return ok && x.desired(id)
}

// desiredGlob is desired of the glob that covers a name.
func (x *index) desiredGlob(name string) bool {
	glob := cache.GlobOf(name)
	return glob != "" && x.desiredName(glob)
}

// covers reports whether upstream is subscribed to the resource by its name or one of its aliases
// (NAME-3), or is about to be. A name that upstream was asked for counts until Changes gives it up,
// even if nobody wants it: a client may want it again before that.
func (x *index) covers(r *cache.Resource) bool { return x.solicited(r) || goesBy(r, x.desiredName) }

// solicited reports whether the relay has asked upstream for one of the resource's names.
func (x *index) solicited(r *cache.Resource) bool {
	return goesBy(r, func(name string) bool {
		id, ok := x.named.Find(name)
		return ok && x.named.Asked(id)
	})
}

// goesBy reports whether such is true of the name or an alias of a resource.
func goesBy(r *cache.Resource, such func(name string) bool) bool {
	for name := range r.Names() {
		if such(name) {
			return true
		}
	}
	return false
}

// want adds a subscription to a name or to the wildcard. first reports whether it is the only one.
func (x *index) want(s *Subscription, id cache.ID) (first bool) {
	if first = x.interest.add(s, id); first {
		x.linger.end(id)
		x.changed(id)
		if id != wildcardID && x.named.Led(id) == cache.Absent {
			x.named.turned.add(id, struct{}{}) // nobody wanted it when it was looked at
		}
	}
	return first
}

// wantName adds a subscription to a name, which a request asks for. The Run speeds up the search when many names
// follow one another.
func (x *index) wantName(s *Subscription, name string, r *cache.Run, asked *Asked, now time.Time) cache.ID {
	id := x.named.InternNext(r, name)
	asked.Names = append(asked.Names, id)
	if x.want(s, id) {
		if !x.named.Asked(id) {
			asked.Unasked++
		}
		x.unsolicited.recall(name)
		x.shelf.serve(id, name, now)
	}
	return id
}

// unwant removes a subscription to a name or to the wildcard; had reports whether there was one.
// When the last one ends, the name may linger.
func (x *index) unwant(s *Subscription, id cache.ID, now time.Time) (had bool) {
	last, had := x.interest.remove(s, id)
	if !last {
		return had
	}
	if linger := x.hub.limits.Load().Linger; linger > 0 && x.lingers(id) {
		x.linger.keep(id, now.Add(linger))
	}
	x.changed(id) // upstream has to look at it, if only to learn when to look again
	return true
}

// lingers reports whether a name, or the wildcard, lingers when its last client leaves: not if upstream may be
// refusing the type (H-41), or the name is known not to exist (UP-7), or what it leads to is for nobody to keep
// (VALID-5), or upstream was never asked for it (UP-6), except in an outage: its client may be back before upstream is.
func (x *index) lingers(id cache.ID) bool {
	asked := x.wildcard.asked
	if id != wildcardID {
		asked = x.named.Asked(id)
		if x.answers.of(id).State == cache.Absent {
			return false
		}
	}
	if x.suspect || x.uncached(id) {
		return false
	}
	return asked || x.holds(id) || x.laneOf(id).unavailable != nil
}

// uncached reports whether a name, or the wildcard, leads to a resource that is kept only while somebody
// subscribes to it (VALID-5).
func (x *index) uncached(id cache.ID) bool {
	if id == wildcardID {
		return x.wildcard.Uncached() > 0
	}
	for r := range x.named.Leads(id) {
		if r.DoNotCache {
			return true
		}
	}
	return false
}

// laneOf returns the lane on which a name, or the wildcard, is asked for.
func (x *index) laneOf(id cache.ID) *lane { return x.lane(Lane{x.url, id == wildcardID}) }

// holds reports whether upstream has answered a name, or has sent something of the wildcard's set.
func (x *index) holds(id cache.ID) bool {
	if id == wildcardID {
		return x.wildcard.synced || x.wildcard.Len() > 0
	}
	return x.named.Answered(id)
}
