package session

import "time"

// When a group that has no clients any more is over (NODE-10): when its stream is alive. Until
// then its content may be all there is of the last known good state, and a client that
// restarts in an outage finds it (G8).

// retirement is what a group without clients waits for.
type retirement struct {
	since time.Time // it was asked for; zero: the group is in use
	// The question to which the main stream has to turn out to be alive, and the stream on
	// which it was put; zero: it was not.
	stream   StreamID
	question uint64
}

// Retire says that the group is to be over as soon as its stream is alive. It is asked at
// once, and else each time a stream has been open for UnavailableAfter.
func (c *Core) Retire(now time.Time) { c.retirement = retirement{since: now} }

// Stay takes Retire back: there are clients again.
func (c *Core) Stay() { c.retirement = retirement{} }

// Over reports, once, that the group that was to retire is over.
func (c *Core) Over(now time.Time) bool {
	over := !c.retirement.since.IsZero() && c.retires(now)
	if over {
		c.Stay()
	}
	return over
}

// retires: its stream is alive, or it has none and needs none.
func (c *Core) retires(now time.Time) bool {
	s := &c.main
	switch {
	case !s.open():
		return s.id == 0 && s.openAt.IsZero()
	case !c.checks(s): // a stream that has been open for so long counts as alive
		return !c.retireAt().After(now)
	}
	return c.retirement.asked(s) && s.alive.answeredSince(c.retirement.question)
}

// asked: the question was put on a stream.
func (r *retirement) asked(s *slot) bool { return r.stream == s.id }

// tickRetirement puts the question, if it is time to.
func (c *Core) tickRetirement(now time.Time) {
	if at := c.retireAt(); !at.IsZero() && !at.After(now) && c.checks(&c.main) {
		c.retirement.stream, c.retirement.question = c.main.id, c.main.alive.question(now)
	}
}

// retireAt is when to ask whether the main stream is alive, or to take it for that; zero:
// not yet, or it is asked.
func (c *Core) retireAt() time.Time {
	r, s := &c.retirement, &c.main
	switch {
	case r.since.IsZero(), !s.open():
		return time.Time{}
	case !c.checks(s):
	case r.asked(s):
		return time.Time{}
	case !s.opened.After(r.since):
		return r.since
	}
	return latest(r.since, s.opened.Add(c.config.UnavailableAfter))
}

// retiring: a slot's stream was asked whether it is alive, so that the group can be over,
// and it is not known yet. Nobody waits with the check, which is all that is asked.
func (c *Core) retiring(s *slot) bool {
	r := &c.retirement
	return s == &c.main && !r.since.IsZero() && r.asked(s) && !s.alive.answeredSince(r.question)
}
