package fanout

import (
	"slices"
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
		x := h.find(lane.Type)
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
			_, again := x.again[id]
			delete(x.again, id)
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
				x.forget(name, remains)
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
		if x := h.find(lane.Type); x != nil {
			h.drop(x)
		}
	}
	h.wanted.notify() // of what was left to names
	return changes, later
}

// Asked says that upstream has been asked for names of a lane: what comes of them
// from now on is an answer. Doubtful are those of them that lead to something
// unconfirmed.
func (h *Hub) Asked(lane Lane, names []string) (doubtful []string) {
	h.look(lane.Type, func(x *index) {
		if lane.Wildcard {
			x.wildcard.asked = true
			return
		}
		for _, name := range names {
			if id, ok := x.named.Find(name); ok {
				x.named.Ask(id)
			}
			if len(x.named.UnconfirmedAnswers(name)) > 0 {
				doubtful = append(doubtful, name)
			}
		}
	})
	return doubtful
}

// Silent are those of the names of a type that somebody wants and of which upstream has
// said nothing on their own lane. shown are the ones of which it has, on the stream that
// carries them, shown a copy that is not here: a server that remembers believes them
// delivered (UP-19).
func (h *Hub) Silent(t cache.TypeURL, names []string, stream uint64) (silent, shown []string) {
	h.look(t, func(x *index) {
		for _, name := range names {
			if id, ok := x.named.silent(name, stream); !ok || !x.wants(id) {
				continue
			}
			if x.shown.has(name, stream) {
				shown = append(shown, name)
			} else {
				silent = append(silent, name)
			}
		}
	})
	return silent, shown
}

// Lacking are those of the names of a type that upstream does not have, or has not answered: an error is
// an answer.
func (h *Hub) Lacking(t cache.TypeURL, names []string, stream uint64) (lacking []string) {
	h.look(t, func(x *index) {
		for _, name := range names {
			_, silent := x.named.silent(name, stream)
			if id, ok := x.named.Find(name); ok && (silent || x.named.Answer(id).State == cache.Absent) {
				lacking = append(lacking, name)
			}
		}
	})
	return lacking
}

// Absentees are the names of a type that somebody wants, and that upstream does not have
// (UP-19).
func (h *Hub) Absentees(t cache.TypeURL) (names []string) {
	h.look(t, func(x *index) {
		for id := range x.interest.named() {
			if x.named.Answer(id).State == cache.Absent {
				names = append(names, x.named.Name(id))
			}
		}
	})
	return names
}

// Resume is the whole interest of a lane, for the first request of a stream to an
// origin (UP-3), with what is here, and may be shown to it, if resume, given the origin
// that came from, says so (RECON-6 to RECON-8). If not, it stays, but is
// unconfirmed until the new origin has announced it, or it is swept (RECON-12).
func (h *Hub) Resume(lane Lane, origin cache.Origin, stream uint64, resume func(from cache.Origin) bool) (names []string, here []cache.Held) {
	x := h.find(lane.Type)
	if x == nil {
		return nil, nil
	}
	wakeAll(x.locked(func() { names, here = x.resume(lane, origin, stream, resume) }))
	return names, here
}

func (x *index) resume(lane Lane, origin cache.Origin, stream uint64, resume func(from cache.Origin) bool) (names []string, here []cache.Held) {
	if names = x.lane(lane).kind.desired(); len(names) == 0 {
		return nil, nil
	}
	if !lane.Wildcard {
		x.forgetOthers()
	}
	table := x.lane(lane)
	table.Recall()
	if !resume(table.Origin()) {
		table.Begin(origin)
		return names, nil
	}
	table.Resume(origin)
	if !lane.Wildcard && !origin.SotW && x.fullState() {
		x.shown.begin(stream)
	}
	return names, slices.Collect(table.Known())
}

// Doubt says that an origin which a lane is resumed with is not shown these resources:
// its silence says nothing of them, and they are unconfirmed (UP-17).
func (h *Hub) Doubt(lane Lane, names []string) {
	if len(names) == 0 {
		return
	}
	h.look(lane.Type, func(x *index) {
		for _, name := range names {
			x.lane(lane).Doubt(name)
		}
	})
}

// forgetOthers drops what was given up since Changes looked: the stream that begins
// does not ask for it, and nothing keeps it up to date (UP-8, RECON-7).
func (x *index) forgetOthers() {
	remains := x.remains()
	for id := range cache.ID(x.named.Cap()) {
		name := x.named.Name(id) // "" of those that stand for none, too
		if of, ok := x.named.Find(name); ok && of == id && x.named.Pinned(name) && !x.desired(id) {
			x.forget(name, remains)
		}
	}
}

// Names is the whole interest of a lane.
func (h *Hub) Names(lane Lane) (names []string) {
	h.look(lane.Type, func(x *index) { names = x.lane(lane).kind.desired() })
	return names
}

// Lanes are the lanes on which something is wanted.
func (h *Hub) Lanes() []Lane {
	var lanes []Lane
	for _, x := range h.all() {
		x.mu.Lock()
		named, wildcard := x.wantedLanes()
		x.mu.Unlock()
		if wildcard {
			lanes = append(lanes, Lane{x.url, true})
		}
		if named {
			lanes = append(lanes, Lane{x.url, false})
		}
	}
	return lanes
}
