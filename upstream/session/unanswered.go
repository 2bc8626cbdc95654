package session

import (
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
)

// Names to which upstream has not answered, or that it does not have, are asked for
// again: as an unsubscribe, and in the next request a subscribe (UP-19). Servers remember
// for each stream what they have sent. Some leave a later subscribe to it unanswered;
// some never again announce what they have removed, unless it is subscribed again.

const (
	// retryFirst is how long after a name became Absent it is asked for again, at
	// intervals that double from there up to retryMax.
	retryFirst = 5 * time.Second
	retryMax   = 5 * time.Minute
	// pairEvery is how often a type is asked for again.
	pairEvery = time.Second
)

// unanswered is what a lane of names asks for again on a Delta stream. It dies with the
// stream.
type unanswered struct {
	on bool // wildcards, SotW servers and relays are not asked again

	// silent are questions whose names are looked at when a third of the time that the
	// answer may take is over, in order of time.
	silent []nameTimer
	// absent are names that upstream does not have. They are looked up when something
	// may have become so: lookAt, because of what was learned at learned; zero: never.
	absent          map[string]*retry
	queues          [][]retrying // of them, one for each wait, in order of time
	lookAt, learned time.Time

	// due are names to be asked for before their silence counts, restart those whose timer
	// begins then (WILD-11).
	due     []string
	restart map[string]struct{}
	// pair is what is being asked for again: not unsubscribed yet, or, if given, not yet
	// subscribed.
	pair     []string
	given    bool
	pairedAt time.Time
	// deaf are names that were unsubscribed for that, and not answered since: that they
	// are removed is no answer, since some servers say so to an unsubscribe.
	deaf map[string]struct{}
	// shown are names that upstream believes delivered on this stream: another one is
	// needed (refresh).
	shown []string
}

// retry is when a name that upstream does not have is asked for again.
type retry struct {
	at   time.Time
	wait time.Duration
}

// retrying is a name that is to be asked for again.
type retrying struct {
	name string
	*retry
}

// returns notes that somebody wants names of a lane again that were subscribed all along, by
// when they were: they may have been silent while nobody did.
func (u *unanswered) returns(l *laneState, names map[time.Time][]string) {
	if !u.on || len(names) == 0 {
		return
	}
	for written, names := range names {
		u.silent = append(u.silent, nameTimer{written: written, lane: l, names: names})
	}
	slices.SortStableFunc(u.silent, func(a, b nameTimer) int { return a.written.Compare(b.written) })
}

// mayLack notes that something of the type may have become Absent.
func (u *unanswered) mayLack(now time.Time) {
	if u.on && u.lookAt.IsZero() {
		u.learned, u.lookAt = now, now.Add(pairEvery) // at most as often as a pair goes out
	}
}

// answers takes note of what a response says, and takes out what is none: the removal of
// a name that was given up only to be asked for again.
func (u *unanswered) answers(up *cache.Update) {
	if len(u.deaf) > 0 {
		answered(up, func(name string) { delete(u.deaf, name) })
		up.Removed = slices.DeleteFunc(up.Removed, func(name string) bool {
			_, deaf := u.deaf[name]
			return deaf
		})
	}
	if len(u.pair) > 0 && !u.given { // a name that was answered is not given up
		said := make(map[string]struct{})
		answered(up, func(name string) { said[name] = struct{}{} })
		u.pair = slices.DeleteFunc(u.pair, func(name string) bool {
			_, is := said[name]
			return is
		})
		if len(u.pair) == 0 {
			u.pair = nil
		}
	}
	if len(up.Removed)+len(up.Errors) > 0 {
		u.mayLack(up.At)
	}
}

// answered hands over the names of which a response says something other than that they are gone.
func answered(u *cache.Update, each func(name string)) {
	for _, r := range u.Set {
		each(r.Name)
		for _, alias := range r.Aliases {
			each(alias)
		}
	}
	for _, e := range u.Errors {
		each(e.Name)
	}
	for _, name := range u.Kept {
		each(name)
	}
}

// refreshFor has names asked for on another stream.
func (u *unanswered) refreshFor(names []string) {
	if u.on {
		u.shown = append(u.shown, names...)
	}
}

// begin has a name asked for as if it had not been.
func (u *unanswered) begin(name string) {
	if !u.on {
		return
	}
	if u.restart == nil {
		u.restart = make(map[string]struct{})
	}
	u.restart[name] = struct{}{}
	u.due = append(u.due, name)
}

// forget takes out names that are given up. Those that it returns are unsubscribed already.
func (u *unanswered) forget(names []string) (unsubscribed map[string]struct{}) {
	gone := make(map[string]struct{}, min(len(names), len(u.pair)))
	for _, name := range names {
		delete(u.deaf, name)
		delete(u.absent, name)
		delete(u.restart, name)
		if len(u.pair) > 0 {
			gone[name] = struct{}{}
		}
	}
	if len(gone) == 0 {
		return nil
	}
	paired := make(map[string]struct{})
	u.pair = slices.DeleteFunc(u.pair, func(name string) bool {
		_, is := gone[name]
		if is {
			paired[name] = struct{}{}
		}
		return is
	})
	if !u.given {
		return nil
	}
	return paired
}

// pairs: it is time to ask again.
func (u *unanswered) pairs(now time.Time) bool {
	if u.pair != nil || now.Before(u.pairedAt.Add(pairEvery)) {
		return false
	}
	at := u.retryAt()
	return len(u.due) > 0 || !at.IsZero() && !at.After(now)
}

// look takes in which names are Absent by now.
func (u *unanswered) look(names []string) {
	absent := make(map[string]*retry, len(names))
	for _, name := range names {
		r := u.absent[name]
		if r == nil {
			r = &retry{u.learned.Add(retryFirst), retryFirst}
			u.queue(name, r)
		}
		absent[name] = r
	}
	u.absent, u.lookAt = absent, time.Time{}
}

// queue puts a name behind those that wait for as long.
func (u *unanswered) queue(name string, r *retry) {
	i := slices.IndexFunc(u.queues, func(q []retrying) bool { return len(q) > 0 && q[0].wait == r.wait })
	if i < 0 {
		if i = slices.IndexFunc(u.queues, func(q []retrying) bool { return len(q) == 0 }); i < 0 {
			i = len(u.queues)
			u.queues = append(u.queues, nil)
		}
	}
	u.queues[i] = append(u.queues[i], retrying{name, r})
}

// next is the queue whose first name is to be asked for first; -1: there is none.
func (u *unanswered) next() (first int) {
	first = -1
	for i, q := range u.queues {
		for len(q) > 0 && u.absent[q[0].name] != q[0].retry { // it is there, or given up
			q = q[1:]
		}
		if u.queues[i] = q; len(q) > 0 && (first < 0 || q[0].at.Before(u.queues[first][0].at)) {
			first = i
		}
	}
	return first
}

// retryAt is when a name that is Absent is to be asked for again, or zero.
func (u *unanswered) retryAt() (at time.Time) {
	if i := u.next(); i >= 0 {
		at = u.queues[i][0].at
	}
	return at
}

// choose makes a pair of what is due: names whose silence is about to count first, then
// those that have not been asked for longest.
func (u *unanswered) choose(b *Bounds, now time.Time) {
	bytes, chosen := 0, make(map[string]bool)
	add := func(name string) (fits bool) {
		if chosen[name] {
			return true
		}
		bytes += len(name) + 8
		if len(u.pair) == b.Pair || len(u.pair) > 0 && bytes > b.PairBytes {
			return false
		}
		chosen[name] = true
		u.pair = append(u.pair, name)
		return true
	}
	for len(u.due) > 0 {
		if !add(u.due[0]) {
			return
		}
		u.due = u.due[1:]
	}
	for i := u.next(); i >= 0; i = u.next() {
		first := u.queues[i][0]
		if first.at.After(now) || !add(first.name) {
			return
		}
		u.queues[i] = u.queues[i][1:]
		first.wait = min(2*first.wait, retryMax)
		first.at = now.Add(first.wait)
		u.queue(first.name, first.retry)
	}
}

// deadline is when to tick, or zero.
func (u *unanswered) deadline(patience time.Duration) (at time.Time) {
	if len(u.silent) > 0 {
		at = u.silent[0].written.Add(patience)
	}
	at = earlier(at, u.lookAt)
	if u.pair != nil {
		return at
	}
	next := u.pairedAt.Add(pairEvery)
	if len(u.due) > 0 {
		return earlier(at, next)
	}
	if retry := u.retryAt(); !retry.IsZero() {
		at = earlier(at, latest(next, retry))
	}
	return at
}

// askAgain is the next request that asks again, or nil. What there is no room for is due
// still (UP-17).
func (s *streamState) askAgain(l *laneState, r *room, now time.Time) *discovery.DeltaDiscoveryRequest {
	u := &l.unanswered
	u.pair = slices.DeleteFunc(u.pair, func(name string) bool { return !l.subscribed(name) })
	if !u.given {
		for i, name := range u.pair {
			if !r.take(nameSize(name)) {
				u.pair, u.due = u.pair[:i], slices.Concat(u.pair[i:], u.due)
				break
			}
		}
	}
	if len(u.pair) == 0 {
		u.pair, u.given = nil, false
		return nil
	}
	names := slices.Sorted(slices.Values(u.pair))
	req := &discovery.DeltaDiscoveryRequest{TypeUrl: string(l.lane.Type)}
	if !u.given {
		if u.deaf == nil {
			u.deaf = make(map[string]struct{})
		}
		for _, name := range names {
			u.deaf[name] = struct{}{}
		}
		u.given, u.pairedAt = true, now
		req.ResourceNamesUnsubscribe = names
		return req
	}
	u.pair, u.given = nil, false
	req.ResourceNamesSubscribe = names
	s.alive.question(now)
	s.restartTimers(l, names, now)
	return req
}

// restartTimers lets the timers of those names begin of which only silence from now on
// counts. Those of the others go on from their first subscribe.
func (s *streamState) restartTimers(l *laneState, names []string, now time.Time) {
	var restart []string
	for _, name := range names {
		if _, is := l.unanswered.restart[name]; is {
			delete(l.unanswered.restart, name)
			restart = append(restart, name)
		}
	}
	if len(restart) > 0 {
		s.subscribed(l, restart, now)
	}
}

// tickUnanswered looks after what a lane has asked for, and asks again.
func (c *Core) tickUnanswered(s *slot, l *laneState, now time.Time) {
	u := &l.unanswered
	if c.explicitMissing() && !u.given { // it answers every name
		*u = unanswered{}
	}
	if !u.on || l.first {
		return
	}
	t, stream := l.lane.Type, uint64(s.id)
	for len(u.silent) > 0 && !u.silent[0].written.Add(c.config.patience()).After(now) {
		names, shown := c.hub.Of(t).Silent(u.silent[0].current(), stream)
		u.due, u.shown = append(u.due, names...), append(u.shown, shown...)
		u.silent = u.silent[1:]
	}
	if !u.lookAt.IsZero() && !u.lookAt.After(now) {
		u.look(c.hub.Of(t).Absentees())
	}
	if u.pairs(now) {
		u.choose(c.config.bounds(), now)
		u.pair = c.hub.Of(t).Lacking(u.pair, stream) // nil: all was answered meanwhile; the rest has its turn a second later
		u.pairedAt = now
	}
	if len(u.shown) > 0 && !now.Before(c.refreshes.notBefore) {
		_, still := c.hub.Of(t).Silent(u.shown, stream)
		early, _ := c.hub.Of(t).Early(u.shown, stream)
		if u.shown = slices.Concat(still, early); len(u.shown) > 0 {
			c.refresh(s, t, u.shown, now)
		}
	}
}

// mayLack notes that something may have become Absent by itself.
func (c *Core) mayLack(now time.Time) {
	for _, s := range c.slots() {
		if s.open() {
			for _, l := range s.stream.lanes {
				if !l.first { // what is yet to be asked for lacks nothing, and is not looked at
					l.unanswered.mayLack(now)
				}
			}
		}
	}
}
