package fanout

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// Wanted is the mailbox between the Hub and the upstream side: the lanes on which interest may have
// changed. The names are with each lane (lane.dirty). It never holds requests, so what goes
// upstream is computed when it is written (UP-6, H-1).
type Wanted struct {
	fresh atomic.Bool // marked since the last notify

	mu    sync.Mutex
	dirty map[Lane]struct{}
	wake  func()
}

// OnWake sets the function that is called, outside all locks, when there is something to take. It
// must not block.
func (w *Wanted) OnWake(wake func()) {
	w.mu.Lock()
	w.wake = wake
	w.mu.Unlock()
}

// look is why upstream has to look at a name, or the wildcard: it may have become wanted or unwanted,
// and if it is wanted, there may be more to it.
type look struct {
	again bool // the wildcard that answered for the name was given up (fallback.go)
}

// changed notes for upstream that it has to look at a name, or the wildcard. What it will find is
// looked up when upstream asks. A name that is noted is pinned. The caller may add to the look.
func (x *index) changed(id cache.ID) *look {
	l, w := x.laneOf(id), &x.hub.wanted
	if l.dirty.len == 0 { // otherwise the lane is noted already
		w.note(l.at)
	}
	if !w.fresh.Load() {
		w.fresh.Store(true)
	}
	if !l.dirty.has(id) {
		l.dirty.add(id, look{})
	}
	return l.dirty.known(id)
}

// note notes that there is something to take of a lane.
func (w *Wanted) note(lane Lane) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dirty[lane] = struct{}{}
}

// notify wakes the reader if there is something new. The caller holds no lock.
func (w *Wanted) notify() {
	if !w.fresh.Load() || !w.fresh.Swap(false) {
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

// take returns the lanes that may be written now, wildcards first. later is when the first of the
// others may be, or zero. With a wildcard the names of its type are looked at, too.
func (w *Wanted) take(now time.Time, carrier func(Lane) (Carrier, bool)) (dirty []Lane, later time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, wildcard := range []bool{true, false} { // what a wildcard leaves to names is taken with it
		for lane := range w.dirty {
			switch by, _ := carrier(lane); {
			case lane.Wildcard != wildcard:
			case by.Until.After(now):
				later = earlier(later, by.Until)
			default:
				dirty = append(dirty, lane)
				delete(w.dirty, lane)
				if wildcard {
					w.dirty[Lane{Type: lane.Type}] = struct{}{}
				}
			}
		}
	}
	w.fresh.Store(false)
	return dirty, later
}

// Carrier is the stream that carries a lane.
type Carrier struct {
	Origin cache.Origin
	// Until is how long changes of interest are gathered: until then names stay where they are, and
	// so does what is known of them, since they may be wanted again (UP-6).
	Until time.Time
	// Most is how many names are taken at a time, so that others have their turn; 0: all. Those that the
	// wildcard leaves to names are taken with it.
	Most int
}

// Interest is what a group wants on one lane. On the wildcard's lane the one name is Wildcard.
type Interest struct {
	// More: there are more names than Carrier.Most, to be taken next.
	More bool
	Want []string
	// Again are those of Want that count as unanswered although they are subscribed: the
	// wildcard that answered for them was given up (WILD-11).
	Again []string
	// Leave are names that are not wanted any more, and need not be unsubscribed: the server sends
	// them in any case (UP-9).
	Leave []string
	// Drop are names that are not wanted any more. What was known of them is already forgotten
	// (UP-8), so the caller must unsubscribe them.
	Drop []string
}

// Changes takes the changes of interest since the last call that may be written now, lane by lane; later is
// when to call it for the rest, or zero. A lane that no stream carries is asked for as a whole by the next
// one, with the versions of what is here (RECON-7), so everything that a wanted name leads to stays. The
// stream that carries a lane has an origin, and what comes from now on is of that origin.
func (h *Hub) Changes(now time.Time, carrier func(Lane) (c Carrier, carried bool)) (changes map[Lane]Interest, later time.Time) {
	taken, later := h.wanted.take(now, carrier)
	changes = make(map[Lane]Interest, len(taken))
	for _, lane := range taken {
		// A type without an index is not wanted any more, and nothing has been noted since upstream was told so.
		h.types.change(lane.Type, func(x *index) {
			var i Interest
			l := x.lane(lane)
			by, carried := carrier(lane)
			remains := x.remains()
			most := cmp.Or(by.Most, l.dirty.len)
			if _, left := changes[Lane{lane.Type, true}]; left {
				most = l.dirty.len
			}
			for _, e := range l.dirty.take(most) {
				name := Wildcard
				if !lane.Wildcard {
					name = x.named.Name(e.id)
				}
				if x.desired(e.id) {
					i.Want = append(i.Want, name)
					if e.known.again {
						i.Again = append(i.Again, name)
					}
					continue
				}
				if lane.Wildcard {
					x.wildcard.forget()
				} else {
					x.named.forget(name, remains)
				}
				if x.unsolicited.unasked && !lane.Wildcard && !by.Origin.SotW {
					i.Leave = append(i.Leave, name)
				} else {
					i.Drop = append(i.Drop, name)
				}
			}
			if carried && len(i.Want) > 0 && l.Origin() == (cache.Origin{}) {
				l.Begin(by.Origin)
				l.Heard()
			}
			if i.More = l.dirty.len > 0; i.More {
				h.wanted.note(lane)
				later = now
			}
			changes[lane] = i
		})
		h.types.drop(lane.Type)
	}
	return changes, later
}

// Lanes returns the lanes on which something is wanted. Clients can invent types, so there may be very many.
func (h *Hub) Lanes() map[Lane]bool {
	lanes := make(map[Lane]bool)
	for x := range h.types.locked() {
		lingering := x.linger.len
		if x.linger.has(wildcardID) {
			lingering--
		}
		if x.desired(wildcardID) {
			lanes[Lane{x.url, true}] = true
		}
		if x.interest.names+lingering > 0 {
			lanes[Lane{x.url, false}] = true
		}
	}
	return lanes
}
