package fanout

import (
	"iter"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// Who wants what, and what lingers.

// desired: somebody wants it, or it lingers, or is kept.
func (x *index) desired(id cache.ID) bool {
	if x.hub.kept.Load() {
		return id == wildcardID && x.wildcard.held || id != wildcardID && x.named.Pinned(x.named.Name(id))
	}
	return x.linger.has(id) || x.interest.wants(id)
}

// desiredName is desired, of a name.
func (x *index) desiredName(name string) bool {
	id, ok := x.named.Find(name)
	return ok && x.desired(id)
}

// covers: upstream is subscribed to the resource by its name or one of its aliases
// (NAME-3), or is about to be. A name counts until Changes gives it up, whether or
// not somebody still wants it: what comes until then may be wanted again.
func (x *index) covers(r *cache.Resource) bool { return goesBy(r, x.named.Pinned) }

// solicited: upstream has been asked for it by one of them.
func (x *index) solicited(r *cache.Resource) bool {
	return goesBy(r, func(name string) bool {
		id, ok := x.named.Find(name)
		return ok && x.named.Asked(id)
	})
}

// goesBy: one of the names of a resource is such a name.
func goesBy(r *cache.Resource, such func(name string) bool) bool {
	for name := range names(r) {
		if such(name) {
			return true
		}
	}
	return false
}

// want adds a subscription to the next of many names.
func (x *index) want(s *Subscription, name string, r *cache.Run) cache.ID {
	id := x.named.InternNext(r, name)
	if x.interest.add(s, id) {
		if !x.named.Answered(id) {
			if r, ok := x.shown.recall(name); ok {
				x.named.Set(r.Resource, r.Upstream, x.next(), nil)
			}
		}
		delete(x.restored.awaited, name)
		x.linger.end(id)
		x.changed(id)
	}
	return id
}

// unwant takes a subscription to a name, or to the wildcard, away.
func (x *index) unwant(s *Subscription, id cache.ID, now time.Time) {
	if x.interest.remove(s, id) {
		x.leave(id, now)
	}
}

func (x *index) wantWildcard(s *Subscription) {
	x.wildcard.held = true
	if x.interest.add(s, wildcardID) {
		x.linger.end(wildcardID)
		x.changed(wildcardID)
	}
}

func (x *index) unwantWildcard(s *Subscription, now time.Time) {
	x.unwant(s, wildcardID, now)
	x.readers.leave(s)
}

// leave is called when the last interest in something ends. What upstream was not
// asked for yet need not linger (UP-6), unless it cannot be asked: whoever wanted it may
// be back before it can. Nor does what it is known not to have: there is nothing to keep
// current (UP-7).
func (x *index) leave(id cache.ID, now time.Time) {
	gone, linger := id != wildcardID && x.answers.absent(id), x.hub.limits.Load().linger
	if !x.suspect && !gone && (x.asked(id) || x.holds(id) || x.laneOf(id).unavailable != nil) && linger > 0 {
		x.linger.keep(id, now.Add(linger))
	}
	x.changed(id) // upstream has to know, if only when to look again
}

// asked: upstream has been asked for it.
func (x *index) asked(id cache.ID) bool {
	if id == wildcardID {
		return x.wildcard.asked
	}
	return x.named.Asked(id)
}

// laneOf is the one on which a name, or the wildcard, is asked for.
func (x *index) laneOf(id cache.ID) *lane {
	if id == wildcardID {
		return &x.wildcard.lane
	}
	return &x.named.lane
}

// holds: something is known of it.
func (x *index) holds(id cache.ID) bool {
	if id == wildcardID {
		return x.wildcard.synced || x.wildcard.Len() > 0
	}
	return x.named.Answered(id)
}

// names yields a resource's name and aliases.
func names(r *cache.Resource) iter.Seq[string] {
	return func(yield func(string) bool) {
		if !yield(r.Name) {
			return
		}
		for _, alias := range r.Aliases {
			if !yield(alias) {
				return
			}
		}
	}
}
