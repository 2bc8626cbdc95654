package fanout

import (
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// What lingers: wanted by nobody, still subscribed upstream (UP-7). Its number is bounded.
// While upstream is not alive the bound is for what leads to nothing, since the rest cannot
// be had again (NODE-10).

// lingerers are what lingers of one type, the longest unwanted first. The time is when it
// is given up. Names are pinned as long as they linger.
type lingerers struct {
	x *index
	queue[time.Time]
	// idle are those that led to nothing when they were left, in the same order.
	idle queue[struct{}]
	// most is how many there may be: as configured, or what was loaded from disk.
	most int
	// fading are those that may lead to nothing at the end of a change.
	fading []cache.ID
}

// keep adds something that nobody wants any more.
func (l *lingerers) keep(id cache.ID, until time.Time) {
	l.add(id, until)
	if !l.leads(id) {
		l.idle.add(id, struct{}{})
	}
	l.bound()
}

// end: something lingers no more, if it did.
func (l *lingerers) end(id cache.ID) {
	if l.remove(id) {
		l.idle.remove(id)
		l.x.changed(id)
	}
}

// changes: what a name leads to has changed. If it lingers, and leads to nothing at the end of the
// change, it does not linger any more.
func (l *lingerers) changes(id cache.ID) {
	if l.has(id) {
		l.fading = append(l.fading, id)
	}
}

// settle gives up what lingers and leads to nothing any more (UP-7), unless it is from disk and nobody
// has come back for it.
func (l *lingerers) settle() {
	for _, id := range l.fading {
		if !l.x.restored.awaits(l.x.named.Name(id)) && l.x.answers.absent(id) {
			l.end(id)
		}
	}
	l.fading = l.fading[:0]
}

// bound gives up what is too much.
func (l *lingerers) bound() {
	if !l.x.hub.spares.Load() {
		for l.len > l.most {
			id, _, _ := l.oldest()
			l.end(id)
		}
		return
	}
	for l.idle.len > l.most {
		id, _, _ := l.idle.oldest()
		if l.idle.remove(id); !l.leads(id) {
			l.end(id)
		}
	}
}

// leads: something that lingers leads to a resource, or is a set.
func (l *lingerers) leads(id cache.ID) bool {
	if id == wildcardID {
		return l.x.holds(id)
	}
	return l.x.named.Led(id) == cache.Present
}

// expire gives up what has lingered until now, or everything.
func (l *lingerers) expire(now time.Time, everything bool) (next time.Time) {
	for {
		id, until, ok := l.oldest()
		if !ok {
			return time.Time{}
		}
		if !everything && until.After(now) {
			return until
		}
		l.end(id)
	}
}

// Spare has names that lead to something linger whatever their number, or not: while
// upstream is not alive they are all there is of the last known good state (NODE-10).
func (h *Hub) Spare(spares bool) {
	h.spares.Store(spares)
	for x := range h.types.locked() {
		x.linger.bound()
	}
	h.wanted.notify()
}

// Bare reports whether nothing is here: no resource, and no set that is known to be empty.
func (h *Hub) Bare() bool {
	for x := range h.types.locked() {
		if x.named.Len()+x.wildcard.Len() > 0 || x.wildcard.synced {
			return false
		}
	}
	return true
}
