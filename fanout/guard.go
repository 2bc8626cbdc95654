package fanout

import (
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// The mass-removal guard (H-22). A control plane that comes back with empty caches would remove
// everything from the clients. An update that removes much of a type right after a (re)connect is
// therefore held back for a while: the resources stay, for new clients, too. The removals are
// carried out when the control plane repeats them on another stream, when an operator says so, or
// when the time is up. They are forgotten when the control plane sends the resources after all, or is
// shown them on a later stream and does not contradict. From the moment that a later stream begins,
// it judges: until its silence counts, no hold ends.

// Guard configures how many removals are held back, and for how long.
type Guard struct {
	// More than Fraction of a lane's resources and at least Min are held back. 0 turns the guard off.
	Fraction float64
	Min      int
	// Within is how long after its opening a stream is doubted, and Hold how long its removals are
	// held back.
	Within, Hold time.Duration
}

// afterSwitch is the least strict guard after a switch to another control plane when nothing was
// missing; it holds even if the configured guard is off (UP-14).
var afterSwitch = Guard{Fraction: 0.5, Min: 20, Within: time.Minute, Hold: 5 * time.Minute}

// stricter returns a guard that holds back what either of two guards does.
func (c Guard) stricter(o Guard) Guard {
	if c.Fraction == 0 {
		return o
	}
	return Guard{min(c.Fraction, o.Fraction), min(c.Min, o.Min), max(c.Within, o.Within), max(c.Hold, o.Hold)}
}

// guard holds back the removals of one lane.
type guard struct {
	// stream is the last one that has asked for the lane. total is how many resources there were when
	// it began, and taken how many of them it has removed, held-back removals included.
	stream       uint64
	total, taken int
	passed       int // how many of taken were not held back

	held map[string]holding
	next time.Time // when to look at held: not after the first is due; zero: all wait for stream
	// paused is since when no stream is alive, so that the time of held-back removals stands still;
	// zero while one is.
	paused time.Time
	// returned counts the held-back removals that were forgotten since that was last told, because the resources are there
	// after all.
	returned int
}

// holding is a removal that is held back.
type holding struct {
	departure
	stream uint64 // the stream that removed it
	until  time.Time
}

// departure is the removal of a name, with its cause.
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

// Held describes removals that have just been held back, confirmed or forgotten, for people.
type Held struct {
	// Count is how many were held back, First are the first of these, and Total is how many resources are on the lane.
	Count, Total int
	First        []string
	// Until is when they will be carried out.
	Until time.Time
	// Confirmed is how many held-back removals another stream has repeated, and Returned how many are forgotten, because
	// the resources are there after all.
	Confirmed, Returned int
}

// begin notes that another stream has asked for the lane. What waited for the one before may be due.
func (g *guard) begin(stream uint64) {
	if stream == g.stream {
		return
	}
	g.stream, g.total, g.taken, g.passed = stream, 0, 0, 0
	g.lookAgain()
}

// lookAgain has expire look at all that is held, also at what waits for a stream.
func (g *guard) lookAgain() {
	g.next = time.Time{}
	for _, h := range g.held {
		g.next = earlier(g.next, h.until)
	}
}

// observe notes which stream an Update came on and which resources it shows to exist, before it is
// applied. resources is how many there are on the lane.
func (g *guard) observe(u *cache.Update, resources int) {
	g.begin(u.Stream)
	g.total = max(g.total, resources+g.passed)
	for _, r := range u.Set {
		g.returns(r.Name)
	}
	for _, name := range u.Kept { // includes heartbeats
		g.returns(name)
	}
}

// returns forgets a removal whose resource is there after all.
func (g *guard) returns(name string) {
	if _, held := g.held[name]; held {
		delete(g.held, name)
		g.returned++
	}
}

// takeReturned returns how many removals were forgotten since it was called last.
func (g *guard) takeReturned() (returned int) {
	returned, g.returned = g.returned, 0
	return returned
}

// pass returns the departures of an Update that may happen now, and holds the others back.
func (g *guard) pass(c Guard, u *cache.Update, t *cache.Table, all departures) (now departures, held Held) {
	if u.AfterSwitch {
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
		from = g.paused // the pause is added when it ends
	}
	until := from.Add(c.Hold)
	if len(g.held) == 0 {
		g.held, g.next = make(map[string]holding, len(doubtful)), time.Time{}
	}
	g.next = earlier(g.next, until)
	for _, d := range doubtful {
		g.held[d.name] = holding{d, u.Stream, until}
	}
	held.Count, held.Total, held.Until = len(doubtful), g.total, until
	for _, d := range doubtful[:min(len(doubtful), maxListed)] {
		held.First = append(held.First, d.name)
	}
	return now, held
}

// deadline returns when to call expire; zero if nothing is due.
func (g *guard) deadline() time.Time {
	if len(g.held) == 0 || !g.paused.IsZero() {
		return time.Time{}
	}
	return g.next
}

// pause stops the time of held-back removals, or lets it go on. Only time in which a stream is
// alive counts.
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
		g.paused = time.Time{}
		g.lookAgain()
	}
}

// expire returns the removals whose time is up, and which no later stream judges. One that came on an
// earlier stream waits if the present one was shown the resource (shown). If it was not, this stream
// has to announce the resource, or it is swept (RECON-12): the removal is forgotten.
func (g *guard) expire(now time.Time, shown func(name string) bool) (due departures) {
	if at := g.deadline(); at.IsZero() || at.After(now) {
		return nil
	}
	g.next = time.Time{}
	for name, h := range g.held {
		switch {
		case h.until.After(now):
			g.next = earlier(g.next, h.until)
		case h.stream == g.stream:
			delete(g.held, name)
			due = append(due, h.departure)
		case !shown(name):
			g.returns(name)
		}
	}
	return due
}

// release returns all held-back removals.
func (g *guard) release() (all departures) {
	for _, h := range g.held {
		all = append(all, h.departure)
	}
	return all
}

// takeBack forgets a removal that came on an earlier stream than this one, which is silent about the resource, and
// whose silence counts by now (MISS-3).
func (g *guard) takeBack(name string, stream uint64) {
	if h, held := g.held[name]; held && h.stream != stream {
		g.returns(name)
	}
}

// letGo carries out the removals that f takes from the guards of both lanes, and returns how many.
func (x *index) letGo(f func(*lane) departures) (count int) {
	named, members := f(&x.named.lane), f(&x.wildcard.lane)
	x.named.removeAll(named)
	x.wildcard.removeAll(members)
	x.wildcard.conclude()
	x.wildcard.tell()
	return len(named) + len(members)
}

// Alive notes whether a stream to the control plane is alive. While none is, the time of held-back
// removals stands still (H-22).
func (h *Hub) Alive(alive bool, now time.Time) {
	for x := range h.types.locked() {
		x.named.guard.pause(!alive, now)
		x.wildcard.guard.pause(!alive, now)
	}
}
