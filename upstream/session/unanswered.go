package session

import (
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
)

// The relay asks again for names that upstream has not answered or does not have: with an
// unsubscribe, and a subscribe in the next request (UP-19). Servers remember what they have
// sent on each stream. Some do not answer a later subscribe to it, and some never announce
// again what they have removed unless it is subscribed again.

const (
	// retryFirst is how long after a name became Absent the relay asks for it again. The
	// interval doubles each time, up to retryMax.
	retryFirst = 5 * time.Second
	retryMax   = 5 * time.Minute
	// pairEvery is the least time between two pairs of requests for a type.
	pairEvery = time.Second
)

// unanswered asks again for the names of one lane of a Delta stream. It ends with the stream.
//
//	   subscribe (stream.go: subscribed)
//	               |
//	               v           any other answer than a removal (answers)
//	+-----------> asked ------------------------------------------> answered
//	|              | |  |                                              |
//	|              | |  | the missing timer runs out and the           | removal
//	|              | |  | stream is alive (timers.go, alive.go);       |
//	|              | |  | or a removal (answers)                       v
//	|              | |  +-------------------------------------------> absent
//	|              | |                                                 |
//	| unanswered   | | unanswered for config.patience, but             | 5 s later,
//	| for config.  | | the server has shown a copy (tickUnanswered)    | then 10 s,
//	| patience     | |                                                 | ... 5 min
//	|              | +--> shown: a new stream asks (refresh.go)        | (choose)
//	|              v                                                   |
//	|             due                                                  |
//	|              |     at most one pair per type and pairEvery       |
//	|              +-----------------> pair <--------------------------+
//	|                                   | unsubscribe written (askAgain)
//	|                                   v
//	+--------------------------- given, and unsubscribed
//	      subscribe written (askAgain)
//
// An answer takes a name out of every state but given, whose subscribe is still written. Names that
// clients give up leave all of them. The second subscribe restarts neither config.patience nor the
// missing timer, unless the name is in restart (stream.go). An absent name stays absent while it is
// in a pair. A removal does not answer an unsubscribed name.
type unanswered struct {
	on bool // false for wildcards, SotW servers and relays

	// waiting has the requests whose names have no answer yet as far as is known, in order of
	// time. They are looked at after config.patience.
	waiting []nameTimer
	// absent has the names that upstream does not have. It is read from the Hub at lookAt,
	// after a response or timer of the time learned may have changed it; zero: never.
	absent          map[string]*retry
	queues          [][]retrying // the absent names, one queue for each wait, in order of time
	lookAt, learned time.Time

	// due has the names to ask for again before their silence counts.
	due []string
	// pair has the names to unsubscribe or, if given is set, to subscribe next; then they are in order,
	// each once.
	pair     []string
	given    bool
	pairedAt time.Time
	// unsubscribed has the names that were unsubscribed to ask again, and not answered since. Their
	// removal does not count, since some servers answer an unsubscribe with one.
	unsubscribed map[string]struct{}
	// shown has the names that upstream believes delivered on this stream: only a new
	// stream gets an answer (refresh).
	shown []string
}

// retry is the time at which to ask again for a name that upstream does not have.
type retry struct {
	at   time.Time
	wait time.Duration
}

// retrying is an absent name in a queue.
type retrying struct {
	name string
	*retry
}

// returns handles names that clients want again and that were subscribed all along, by the time
// of the subscribe: upstream may have left them unanswered while nobody wanted them.
func (u *unanswered) returns(l *laneState, names map[time.Time][]string) {
	if !u.on || len(names) == 0 {
		return
	}
	for written, names := range names {
		u.waiting = append(u.waiting, nameTimer{written: written, lane: l, names: names})
	}
	slices.SortStableFunc(u.waiting, func(a, b nameTimer) int { return a.written.Compare(b.written) })
}

// lookSoon schedules a look at which names of the type are Absent.
func (u *unanswered) lookSoon(now time.Time) {
	if u.on && u.lookAt.IsZero() {
		u.learned, u.lookAt = now, now.Add(pairEvery) // at most as often as a pair goes out
	}
}

// answers handles the answers of a response, and deletes removals that answer only the
// unsubscribe of a name that is being asked for again.
func (u *unanswered) answers(up *cache.Update) {
	if len(u.unsubscribed) > 0 {
		answered(up, func(name string) { delete(u.unsubscribed, name) })
		up.Removed = slices.DeleteFunc(up.Removed, func(name string) bool {
			_, was := u.unsubscribed[name]
			return was
		})
	}
	if len(up.Removed)+len(up.Errors) > 0 {
		u.lookSoon(up.At)
	}
}

// answered calls each for the names that a response answers with anything but a removal.
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

// refreshFor has names asked for on a new stream.
func (u *unanswered) refreshFor(names []string) {
	if u.on {
		u.shown = append(u.shown, names...)
	}
}

// leave takes a name out of a pair whose subscribe is still to be written. It reports whether it did:
// the name is unsubscribed already.
func (u *unanswered) leave(name string) (unsubscribed bool) {
	if !u.given {
		return false
	}
	i, unsubscribed := slices.BinarySearch(u.pair, name)
	if unsubscribed {
		u.pair = slices.Delete(u.pair, i, i+1)
	}
	return unsubscribed
}

// pairAt is when to choose the next pair, or zero.
func (u *unanswered) pairAt() (at time.Time) {
	if len(u.due) == 0 {
		if at = u.retryAt(); at.IsZero() {
			return at
		}
	}
	return latest(at, u.pairedAt.Add(pairEvery))
}

// look replaces the absent names; those that stay keep their retry.
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

// queue puts a name at the end of the queue of its wait.
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

// next returns the queue whose first name is the next to ask for, or -1.
func (u *unanswered) next() (first int) {
	first = -1
	for i, q := range u.queues {
		for len(q) > 0 && u.absent[q[0].name] != q[0].retry { // answered or given up meanwhile
			q = q[1:]
		}
		if u.queues[i] = q; len(q) > 0 && (first < 0 || q[0].at.Before(u.queues[first][0].at)) {
			first = i
		}
	}
	return first
}

// retryAt is when to ask again for the next absent name, or zero.
func (u *unanswered) retryAt() (at time.Time) {
	if i := u.next(); i >= 0 {
		at = u.queues[i][0].at
	}
	return at
}

// choose fills the pair with up to most names: first with those that are due, then with absent names
// in the order in which their retries are due.
func (u *unanswered) choose(most int, now time.Time) {
	n := min(len(u.due), most)
	u.pair, u.due = slices.Clone(u.due[:n]), u.due[n:]
	for i := u.next(); i >= 0 && len(u.pair) < most; i = u.next() {
		first := u.queues[i][0]
		if first.at.After(now) {
			return
		}
		u.queues[i] = u.queues[i][1:]
		u.pair = append(u.pair, first.name)
		first.wait = min(2*first.wait, retryMax)
		first.at = now.Add(first.wait)
		u.queue(first.name, first.retry)
	}
}

// deadline is when to call tickUnanswered next, or zero.
func (u *unanswered) deadline(patience time.Duration, now time.Time) (at time.Time) {
	if len(u.waiting) > 0 {
		at = u.waiting[0].written.Add(patience)
	}
	next := u.pairAt()
	if u.pair != nil { // it may come to nothing before it is written
		next = toCome(next, now)
	}
	return earlier(at, u.lookAt, next)
}

// askAgain is the next request that asks again, or nil. It drops names of the pair that were given
// up or answered meanwhile. Those for which there is no room stay due (UP-17).
func (s *streamState) askAgain(l *laneState, r *budget, now time.Time) *discovery.DeltaDiscoveryRequest {
	u := &l.unanswered
	u.pair = slices.DeleteFunc(u.pair, func(name string) bool { return !l.subscribed(name) })
	if !u.given {
		u.pair = s.hub.Of(l.lane.Type).Lacking(u.pair, uint64(s.id)) // others were answered meanwhile
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
	slices.Sort(u.pair)
	u.pair = slices.Compact(u.pair) // one may be due and absent
	names := slices.Clone(u.pair)
	req := &discovery.DeltaDiscoveryRequest{TypeUrl: string(l.lane.Type)}
	if !u.given {
		if u.unsubscribed == nil {
			u.unsubscribed = make(map[string]struct{})
		}
		for _, name := range names {
			u.unsubscribed[name] = struct{}{}
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

// restartTimers starts the timers of the names in restart. Those of other names go on from
// their first subscribe.
func (s *streamState) restartTimers(l *laneState, names []string, now time.Time) {
	var restart []string
	for _, name := range names {
		if _, is := l.restart[name]; is {
			restart = append(restart, name)
		}
	}
	if len(restart) > 0 {
		s.subscribed(l, restart, now)
	}
}

// tickUnanswered moves the names of a lane whose time has come, and chooses the next pair.
func (c *Core) tickUnanswered(s *slot, l *laneState, now time.Time) {
	u := &l.unanswered
	if c.explicitMissing() && !u.given { // the server answers every name
		*u = unanswered{}
	}
	if !u.on {
		return
	}
	t, stream := l.lane.Type, uint64(s.id)
	for len(u.waiting) > 0 && !u.waiting[0].written.Add(c.config.patience()).After(now) {
		names, shown := c.hub.Of(t).Silent(u.waiting[0].current(), stream)
		u.due, u.shown = append(u.due, names...), append(u.shown, shown...)
		u.waiting = u.waiting[1:]
	}
	if due(u.lookAt, now) {
		u.look(c.hub.Of(t).Absentees())
	}
	if u.pair == nil && due(u.pairAt(), now) {
		u.choose(c.config.bounds().Pair, now)
	}
	if len(u.shown) > 0 && !now.Before(c.refreshes.notBefore) {
		_, still := c.hub.Of(t).Silent(u.shown, stream)
		early, _ := c.hub.Of(t).Early(u.shown, stream)
		if u.shown = slices.Concat(still, early); len(u.shown) > 0 {
			c.refresh(s, t, u.shown, now)
		}
	}
}

// lookSoon has every lane look at its absent names, since a lapse may have changed them.
func (c *Core) lookSoon(now time.Time) {
	for _, s := range c.slots() {
		if s.open() {
			for _, l := range s.stream.lanes {
				if !l.first { // nothing was asked for yet, so nothing is absent
					l.unanswered.lookSoon(now)
				}
			}
		}
	}
}
