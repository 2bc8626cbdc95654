package fanout

import (
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// A name that no client wants any more lingers: it stays subscribed upstream (UP-7). The number
// is bounded. While upstream is not alive only names that lead to nothing are bounded, since the
// others could not be fetched again (NODE-10).

// lingerers are the names of one type that linger, the longest unwanted first. Names are pinned as
// long as they linger.
type lingerers struct {
	x *index
	queue[stay]
	// idle are those that led to nothing when their last client left, in the same order.
	idle queue[struct{}]
	// most is the bound: the configured one, or as many as were loaded from disk if they are more.
	most int
	// fading are the names whose answers have changed, which may lead to nothing at the end of the
	// change.
	fading []cache.ID
}

// stay is how long a name lingers.
type stay struct {
	until time.Time
	// awaited: it is from disk. It lingers even if it becomes Absent, so that its client is sent
	// the removal when it comes back, and not after a silence (UP-7).
	awaited bool
}

// keep adds a name that nobody wants any more.
func (l *lingerers) keep(id cache.ID, until time.Time) {
	l.add(id, stay{until: until})
	if !l.leads(id) {
		l.idle.add(id, struct{}{})
	}
	l.bound()
}

// end takes a name out, if it lingers, and has upstream look whether anybody wants it.
func (l *lingerers) end(id cache.ID) {
	if l.remove(id) {
		l.idle.remove(id)
		l.x.changed(id)
	}
}

// changes notes that a name's answer has changed. settle gives it up if it then leads to nothing.
func (l *lingerers) changes(id cache.ID) {
	if l.has(id) {
		l.fading = append(l.fading, id)
	}
}

// settle ends a change: it gives up the names that are now known to lead to nothing (UP-7).
func (l *lingerers) settle() {
	for _, id := range l.fading {
		if l.has(id) && !l.known(id).awaited && l.x.answers.of(id).State == cache.Absent {
			l.end(id)
		}
	}
	l.fading = l.fading[:0]
}

// bound gives up the names that are too many.
func (l *lingerers) bound() {
	if !l.x.hub.keepsLingering.Load() {
		l.limit(l.most)
		return
	}
	for l.idle.len > l.most {
		id, _, _ := l.idle.oldest()
		if l.idle.remove(id); !l.leads(id) {
			l.end(id)
		}
	}
}

// limit gives up the longest unwanted names, until no more than most are left.
func (l *lingerers) limit(most int) {
	for l.len > most {
		id, _, _ := l.oldest()
		l.end(id)
	}
}

// leads reports whether a lingering name leads to a resource or, for the wildcard, whether anything
// of the set is here.
func (l *lingerers) leads(id cache.ID) bool {
	if id == wildcardID {
		return l.x.holds(id)
	}
	return l.x.named.Led(id) == cache.Present
}

// expire gives up the names whose time is up.
func (l *lingerers) expire(now time.Time) {
	for {
		id, oldest, ok := l.oldest()
		if !ok || oldest.until.After(now) {
			return
		}
		l.end(id)
	}
}

// KeepLingering sets whether names that lead to something linger without a bound. While upstream is not
// alive they are all that is left of the last known good state (NODE-10).
func (h *Hub) KeepLingering(keep bool) {
	h.keepsLingering.Store(keep)
	if !keep {
		h.unshelve()
	}
	for x := range h.types.locked() {
		x.linger.bound()
	}
	h.wanted.notify()
}

// Bare reports whether the Hub holds nothing: no resource, and no set that is known to be empty.
func (h *Hub) Bare() bool {
	return !h.types.any(func(x *index) bool { return x.named.Len()+x.wildcard.Len() > 0 || x.wildcard.synced })
}
