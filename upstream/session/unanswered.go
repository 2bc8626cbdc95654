package session

import (
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// The relay asks again for names that upstream has not answered or does not have: with an
// unsubscribe, and a subscribe in the next request (UP-19). Servers remember what they have
// sent on each stream. Some do not answer a later subscribe to it, and some never announce
// again what they have removed unless it is subscribed again.

const (
	// lookAfter is when to look for names that have become Absent, after a response or timer may have made some.
	lookAfter = 10 * time.Millisecond
	// pairEvery is the least time between two pairs of requests for a type.
	pairEvery = time.Second
)

// unanswered asks again for the names of one lane of a Delta stream. It ends with the stream.
//
//	asked -- any other answer than a removal (answersAgain) --> answered
//	asked -- unanswered for config.patience (tickUnanswered) --> due, or delivered if the server
//	    has sent a copy on this stream: a new one asks (refresh.go)
//	asked -- the missing timer runs out and the stream is alive, or a removal --> absent
//	answered -- a removal --> absent
//	due, or absent for 5 s, then 10 s ... 5 min -- one pair per type and pairEvery (choose) --> unsubscribed
//	unsubscribed -- both requests written (askAgain) --> asked
//
// An answer takes a name out of every state, and names that clients give up leave all of them. The
// second subscribe restarts neither config.patience nor the missing timer, unless the name is in
// restart (lane.go). An absent name stays absent while it is asked for again. A removal does not
// answer an unsubscribed name.
type unanswered struct {
	on bool // false for wildcards, SotW servers and relays

	// waiting has the requests whose names have no answer yet as far as is known, in order of
	// time. They are looked at after config.patience.
	waiting []nameTimer
	// returned has names that clients want again, and whose time to be looked at has passed.
	returned []string
	// retries has the names that upstream does not have. The Hub is asked for changes to them at lookAt; zero:
	// there are none. looked: it was asked on this stream for all of them.
	retries retries
	lookAt  time.Time
	looked  bool

	// due has the names to ask for again before their silence counts.
	due      []string
	pairedAt time.Time // when the last pair was written or, before that, chosen
	// unsubscribed has the names that were unsubscribed to ask again, and not answered since, with
	// the time of their first subscribe. Their removal does not count, since some servers answer an
	// unsubscribe with one.
	unsubscribed map[string]time.Time
	// delivered has the names that upstream believes delivered on this stream: only a new
	// stream gets an answer (refresh).
	delivered []string
}

// comesBack handles a name that clients want again and that was subscribed all along: upstream may have
// left it unanswered, and it was looked at while nobody wanted it. It is not asked for again twice.
func (l *laneState) comesBack(name string) {
	u := &l.unanswered
	if !u.on {
		return
	}
	_, again := u.unsubscribed[name]
	if _, restarts := l.restart[name]; again && !restarts {
		return
	}
	if len(u.waiting) > 0 && !l.sent[name].Before(u.waiting[0].written) {
		return // it is still to be looked at
	}
	u.returned = append(u.returned, name)
}

// lookSoon schedules a look at which names of the type are Absent.
func (u *unanswered) lookSoon(now time.Time) {
	if u.on && u.lookAt.IsZero() {
		u.lookAt = now.Add(lookAfter) // once the Hub knows
	}
}

// answersAgain handles the answers of a response to names that are asked for again: they are not
// asked for any more, and removals that answer only the unsubscribe are deleted.
func (l *laneState) answersAgain(up *cache.Update) {
	u := &l.unanswered
	if len(u.unsubscribed) > 0 {
		answered(up, func(name string) {
			l.leavesPair(name)
			delete(u.unsubscribed, name)
		})
		up.Removed = slices.DeleteFunc(up.Removed, func(name string) bool {
			_, is := u.unsubscribed[name]
			return is && !l.leavesPair(name) // it answers the first subscribe if the unsubscribe is not written
		})
	}
	if len(up.Removed)+len(up.Errors) > 0 {
		u.lookSoon(up.At)
	}
}

// leavesPair has a name that is asked for again stay subscribed, if its unsubscribe is not written. It
// reports whether that is so.
func (l *laneState) leavesPair(name string) bool {
	if _, is := l.unanswered.unsubscribed[name]; !is || !l.drop.has(name) {
		return false
	}
	delete(l.unanswered.unsubscribed, name)
	l.drop.remove(name)
	l.want.remove(name)
	return true
}

// answered calls each for the names that a response answers with anything but a removal.
func answered(u *cache.Update, each func(name string)) {
	for _, r := range u.Set {
		for name := range r.Names() {
			each(name)
		}
	}
	for _, e := range u.Errors {
		each(e.Name)
	}
	for _, name := range u.Kept {
		each(name)
	}
}

// pairAt is when to choose the next pair, or zero. The last one must be written before.
func (l *laneState) pairAt() (at time.Time) {
	u := &l.unanswered
	if l.changed() {
		return time.Time{}
	}
	if len(u.due) == 0 {
		if at, _ = u.retries.next(); at.IsZero() {
			return at
		}
	}
	return latest(at, u.pairedAt.Add(pairEvery))
}

// look takes in which names have become absent, and which are not any more.
func (u *unanswered) look(absent, others []string) {
	u.retries.add(absent, u.lookAt.Add(-lookAfter))
	for _, name := range others {
		u.retries.remove(name)
	}
	u.lookAt, u.looked = time.Time{}, true
}

// choose returns up to most names for a pair: first those that are due, then absent names in the
// order in which their retries are due.
func (u *unanswered) choose(most int, now time.Time) (pair []string) {
	u.pairedAt = now
	n := min(len(u.due), most)
	pair, u.due = slices.Clone(u.due[:n]), u.due[n:]
	return append(pair, u.retries.take(most-len(pair), now)...)
}

// unansweredAt is when to call tickUnanswered next, or zero.
func (l *laneState) unansweredAt(patience time.Duration) (at time.Time) {
	u := &l.unanswered
	if len(u.waiting) > 0 {
		at = u.waiting[0].written.Add(patience)
	}
	return earlier(at, u.lookAt, l.pairAt())
}

// askAgain has names unsubscribed, and subscribed again by the next request (take).
func (l *laneState) askAgain(names []string) {
	if l.unanswered.unsubscribed == nil {
		l.unanswered.unsubscribed = make(map[string]time.Time)
	}
	for _, name := range names {
		if l.subscribed(name) {
			l.unanswered.unsubscribed[name] = l.sent[name]
			l.drop.add(name)
			l.want.add(name)
		}
	}
}

// tickUnanswered moves the names of a lane whose time has come, and chooses the next pair.
func (c *Core) tickUnanswered(s *slot, l *laneState, now time.Time) {
	u := &l.unanswered
	if c.explicitMissing() { // the server answers every name
		*u = unanswered{}
	}
	if !u.on {
		return
	}
	t, stream := l.lane.Type, uint64(s.id)
	look, part := u.returned, c.config.bounds().Part
	for u.returned = nil; len(look) < part && len(u.waiting) > 0 && !u.waiting[0].written.Add(c.config.patience()).After(now); u.waiting = u.waiting[1:] {
		look = append(look, u.waiting[0].current()...)
	}
	if len(look) > 0 {
		names, delivered := c.hub.Of(t).Silent(look, stream)
		u.due, u.delivered = append(u.due, names...), append(u.delivered, delivered...)
	}
	if due(u.lookAt, now) {
		absent, others, more := c.hub.Of(t).Absences(!u.looked, part)
		if u.look(absent, others); more {
			u.lookSoon(now)
		}
	}
	if due(l.pairAt(), now) {
		l.askAgain(c.hub.Of(t).Lacking(u.choose(c.config.bounds().Pair, now), stream)) // others were answered meanwhile
	}
	if len(u.delivered) > 0 && !now.Before(c.refreshes.notBefore) {
		_, still := c.hub.Of(t).Silent(u.delivered, stream)
		early, _ := c.hub.Of(t).Early(u.delivered, stream)
		if u.delivered = slices.Concat(still, early); len(u.delivered) > 0 {
			c.refresh(s, t, u.delivered, now)
		}
	}
}

// lookSoon has the lanes of some types look at their absent names, since a lapse may have changed them.
func (c *Core) lookSoon(types []cache.TypeURL, now time.Time) {
	for s := range c.openSlots() {
		for _, t := range types {
			if l := s.stream.lanes[t]; l.asked() { // otherwise nothing is absent
				l.unanswered.lookSoon(now)
				s.stream.wake(l)
			}
		}
	}
}
