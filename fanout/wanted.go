package fanout

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// Wanted is the mailbox between the Hub and the upstream side: the lanes on which
// interest may have changed. The names are with each lane (lane.dirty). There are never
// requests in it, so that what goes upstream is computed when it is written (UP-6, H-1).
type Wanted struct {
	fresh atomic.Bool // marked since the last notify

	mu    sync.Mutex
	dirty map[Lane]struct{}
	wake  func()
}

// OnWake sets what is called, outside all locks, when there is something to take.
// It must not block.
func (w *Wanted) OnWake(wake func()) {
	w.mu.Lock()
	w.wake = wake
	w.mu.Unlock()
}

// mark notes a lane, which is there already unless this is the first name on it. Its caller
// holds the type's lock.
func (w *Wanted) mark(lane Lane, first bool) {
	if first {
		w.mu.Lock()
		w.dirty[lane] = struct{}{}
		w.mu.Unlock()
	}
	if !w.fresh.Load() {
		w.fresh.Store(true)
	}
}

// changed notes for upstream that a name, or the wildcard, is wanted now, or not any more;
// which of them is looked up when upstream asks. A name that is noted is pinned.
func (x *index) changed(id cache.ID) {
	l := x.laneOf(id)
	x.hub.wanted.mark(l.kind.address(), l.dirty.len == 0)
	if !l.dirty.has(id) {
		l.dirty.add(id, struct{}{})
	}
}

// notify wakes the reader if there is something new. Its caller holds no lock.
func (w *Wanted) notify() {
	if !w.fresh.Swap(false) {
		return
	}
	w.mu.Lock()
	wake := w.wake
	w.mu.Unlock()
	if wake != nil {
		wake()
	}
}

// Pending reports whether there is something to take.
func (w *Wanted) Pending() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.dirty) > 0
}

// take takes what may be written now; later is when more of it may be, or zero.
func (w *Wanted) take(now time.Time, until func(Lane) time.Time) (dirty []Lane, later time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for lane := range w.dirty {
		at := until(lane)
		if !at.After(now) {
			dirty = append(dirty, lane)
			delete(w.dirty, lane)
		} else if later.IsZero() || at.Before(later) {
			later = at
		}
	}
	w.fresh.Store(false)
	return dirty, later
}

// Carrier is the stream that carries a lane.
type Carrier struct {
	Origin cache.Origin
	// Until is how long changes of interest are gathered: they are left where they
	// are, and with them what is known of the names, which may be wanted again (UP-6).
	Until time.Time
}

// Interest is what a group wants on one lane; for the wildcard lane the one name
// is Wildcard.
type Interest struct {
	Want []string
	// Again are those of them that are to be asked for although they are
	// subscribed, because the body of the answer was not kept (VALID-5).
	Again []string
	// Anew are those of them that are to be asked for as if they had not been: what was
	// said of them on another lane is not to be had there any more (WILD-11).
	Anew []string
	// Leave are names that are not wanted any more, and need not be unsubscribed: the
	// server sends them whatever it is asked for (UP-9).
	Leave []string
	// Drop are names that are not wanted any more. What was known of them is
	// already forgotten (UP-8): whoever gets them here must unsubscribe them.
	Drop []string
}

// Changes takes what changed since the last call and may be written now, lane by lane;
// later is when to call it for the rest, or zero. A lane that is not
// carried by a stream is asked for as a whole by the next, with the versions of what
// is here (RECON-7): all that answers to some name which is wanted then stays. The
// stream that carries a lane has an origin, of which is what comes from now on.
func (h *Hub) Changes(now time.Time, carrier func(Lane) (c Carrier, carried bool)) (changes map[Lane]Interest, later time.Time) {
	taken, later := h.wanted.take(now, func(lane Lane) time.Time {
		c, _ := carrier(lane)
		return c.Until
	})
	changes = make(map[Lane]Interest, len(taken))
	for _, lane := range taken {
		var i Interest
		x := h.types.find(lane.Type)
		if x == nil {
			continue // nothing is wanted of the type any more, and nothing was noted since that was told
		}
		x.mu.Lock()
		l := x.lane(lane)
		by, carried := carrier(lane)
		remains := x.remains()
		for _, id := range l.dirty.take() {
			name := Wildcard
			if !lane.Wildcard {
				name = x.named.Name(id)
			}
			_, again := x.bodies.again[id]
			delete(x.bodies.again, id)
			if x.desired(id) {
				i.Want = append(i.Want, name)
				if again {
					i.Again = append(i.Again, name)
				}
				if !lane.Wildcard && x.loans.takeAgain(name) {
					i.Anew = append(i.Anew, name)
				}
				continue
			}
			if lane.Wildcard {
				x.wildcard.forget()
			} else {
				x.named.forget(name, remains)
			}
			if x.shown.unasked && !lane.Wildcard && !by.Origin.SotW {
				i.Leave = append(i.Leave, name)
			} else {
				i.Drop = append(i.Drop, name)
			}
		}
		if carried && len(i.Want) > 0 && l.Origin() == (cache.Origin{}) {
			l.Begin(by.Origin)
			l.Heard()
		}
		woken := x.takeWoken()
		x.mu.Unlock()
		wakeAll(woken)
		changes[lane] = i
	}
	for _, lane := range taken {
		h.types.drop(lane.Type)
	}
	h.wanted.notify() // of what was left to names
	return changes, later
}

// Lanes are the lanes on which something is wanted.
func (h *Hub) Lanes() []Lane {
	var lanes []Lane
	for x := range h.types.locked() {
		lingering := x.linger.len
		if x.linger.has(wildcardID) {
			lingering--
		}
		if x.desired(wildcardID) {
			lanes = append(lanes, Lane{x.url, true})
		}
		if x.interest.names+lingering > 0 {
			lanes = append(lanes, Lane{x.url, false})
		}
	}
	return lanes
}
