package fanout

import (
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// The mass-removal guard (H-22): a control plane that comes back with empty caches
// would wipe a fleet through its relay. What would remove much of a type right after
// a (re)connect is therefore held back for a while: the resources stay, for newcomers
// too. It is let go when the control plane says it again on another stream, when an
// operator says so, or when the time is up; and forgotten when the control plane
// turns out to have the resources after all.

// Guard says what is much, and for how long it is held back.
type Guard struct {
	// Fraction of a lane's resources, and how many at least; a Fraction of 0 is off.
	Fraction float64
	Min      int
	// Within is how long after its opening a stream is doubted; Hold how long what
	// it says is held back.
	Within, Hold time.Duration
}

// afterSwitch is the guard of a control plane that was put to use although nothing was
// missing, where no other is configured (UP-14).
var afterSwitch = Guard{Fraction: 0.5, Min: 20, Within: time.Minute, Hold: 5 * time.Minute}

// stricter holds back what either of two guards does.
func (c Guard) stricter(o Guard) Guard {
	if c.Fraction == 0 {
		return o
	}
	return Guard{min(c.Fraction, o.Fraction), min(c.Min, o.Min), max(c.Within, o.Within), max(c.Hold, o.Hold)}
}

// guard is that of one lane.
type guard struct {
	// The stream that speaks on the lane, how many resources there were when it
	// began, and how many of them it has taken away, or would have.
	stream       uint64
	total, taken int
	passed       int // of those taken, the ones that were let pass

	held map[string]holding
	next time.Time // when to look at them: no later than the first is due
	// paused is since when no stream is alive, and the time of what is held back
	// stands still; zero: one is.
	paused time.Time
}

// holding is a removal that is held back.
type holding struct {
	departure
	stream uint64 // on which it was said
	until  time.Time
}

// departure is a name that is about to become Absent, and why.
type departure struct {
	name  string
	cause cache.Cause
}

type departures []departure

func (d *departures) add(names []string, cause cache.Cause) {
	for _, name := range names {
		*d = append(*d, departure{name, cause})
	}
}

// Held tells of removals that have just been held back, or let go, for the log.
type Held struct {
	// Count of them, of so many resources on the lane.
	Count, Total int
	// Until they are let go.
	Until time.Time
	// Confirmed are removals held back until now that another stream has said again.
	Confirmed int
}

// hears takes in what an Update says of itself, before it is applied: resources is
// how many there are on the lane.
func (g *guard) hears(u *cache.Update, resources int) {
	if u.Stream != g.stream {
		g.stream, g.total, g.taken, g.passed = u.Stream, 0, 0, 0
	}
	g.total = max(g.total, resources+g.passed)
	for _, r := range u.Set {
		delete(g.held, r.Name)
	}
	for _, name := range u.Kept { // heartbeats among them
		delete(g.held, name)
	}
}

// pass returns the departures of an Update that may happen now.
func (g *guard) pass(c Guard, u *cache.Update, t *cache.Table, all departures) (now departures, held Held) {
	if u.Wary {
		c = c.stricter(afterSwitch)
	}
	if c.Fraction == 0 {
		return all, Held{}
	}
	var doubtful []departure
	seen := make(map[string]bool, len(all))
	for _, d := range all {
		h, isHeld := g.held[d.name]
		switch {
		case seen[d.name]:
		case !t.Has(d.name): // nothing is lost
			now = append(now, d)
		case isHeld && h.stream != u.Stream:
			now = append(now, d)
			held.Confirmed++
		case !isHeld:
			doubtful = append(doubtful, d)
		}
		seen[d.name] = true
	}
	g.taken += len(doubtful)
	much := g.taken >= c.Min && float64(g.taken) > c.Fraction*float64(g.total)
	if len(doubtful) == 0 || !much || u.Age >= c.Within {
		g.passed += len(doubtful)
		return append(now, doubtful...), held
	}
	from := u.At
	if !g.paused.IsZero() {
		from = g.paused // what is paused goes on from there
	}
	until := from.Add(c.Hold)
	if len(g.held) == 0 {
		g.held, g.next = make(map[string]holding, len(doubtful)), until
	}
	for _, d := range doubtful {
		g.held[d.name] = holding{d, u.Stream, until}
	}
	held.Count, held.Total, held.Until = len(doubtful), g.total, until
	return now, held
}

// complete: the stream that speaks has said all there is. What was held back of the
// words of another, and not said again, is no longer so.
func (g *guard) complete() {
	for name, h := range g.held {
		if h.stream != g.stream {
			delete(g.held, name)
		}
	}
}

// deadline is when to call expire; zero: nothing is held back.
func (g *guard) deadline() time.Time {
	if len(g.held) == 0 || !g.paused.IsZero() {
		return time.Time{}
	}
	return g.next
}

// pause lets the time of what is held back stand still, or go on: only time in which a
// stream is alive counts.
func (g *guard) pause(paused bool, now time.Time) {
	switch {
	case paused && g.paused.IsZero():
		g.paused = now
	case !paused && !g.paused.IsZero():
		stood := now.Sub(g.paused)
		for name, h := range g.held {
			h.until = h.until.Add(stood)
			g.held[name] = h
		}
		g.next, g.paused = g.next.Add(stood), time.Time{}
	}
}

// expire lets go what has been held back until now. What another stream has not said
// again since stays.
func (g *guard) expire(now time.Time) (due departures) {
	if at := g.deadline(); at.IsZero() || at.After(now) {
		return nil
	}
	g.next = time.Time{}
	for name, h := range g.held {
		switch {
		case !h.until.After(now):
			delete(g.held, name)
			if h.stream == g.stream {
				due = append(due, h.departure)
			}
		case g.next.IsZero() || h.until.Before(g.next):
			g.next = h.until
		}
	}
	return due
}

// release lets go everything.
func (g *guard) release() (all departures) {
	for _, h := range g.held {
		all = append(all, h.departure)
	}
	g.held = nil
	return all
}

// holds: the removal of a name is held back.
func (g *guard) holds(name string) bool {
	_, ok := g.held[name]
	return ok
}

// letGo removes from both lanes what f says of their guards.
func (x *index) letGo(f func(*guard) departures) (count int) {
	named, members := f(&x.named.guard), f(&x.wildcard.guard)
	x.named.removeAll(named)
	x.wildcard.removeAll(members)
	x.wildcard.tell()
	return len(named) + len(members)
}

// Alive says whether a stream to the control plane is alive: while none is, the time
// of what is held back stands still (H-22).
func (h *Hub) Alive(alive bool, now time.Time) {
	for x := range h.types.locked() {
		x.named.guard.pause(!alive, now)
		x.wildcard.guard.pause(!alive, now)
	}
}
