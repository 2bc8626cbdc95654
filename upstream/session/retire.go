package session

import "time"

// A group without clients ends as soon as its stream is alive (NODE-10). Until then its content
// may be all that is left of the last known good state, and clients that restart in an outage
// need it (G8).

// retirement is the state of a group that is about to end.
type retirement struct {
	since time.Time // when Retire was called; zero: the group is in use
	// question is the question as of which the main stream must be alive, and stream the one
	// on which it was counted; zero: none was.
	stream   StreamID
	question uint64
}

// Retire has the group end as soon as its stream is alive. An open stream is checked at once, and
// a later one when it has been open for UnavailableAfter.
func (c *Core) Retire(now time.Time) { c.retirement = retirement{since: now} }

// Stay revokes Retire, since there are clients again.
func (c *Core) Stay() { c.retirement = retirement{} }

// Over reports, once, that the group may end.
func (c *Core) Over(now time.Time) bool {
	over := !c.retirement.since.IsZero() && c.retires(now)
	if over {
		c.Stay()
	}
	return over
}

// retires reports whether the main stream is alive, or none is needed.
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

// asked reports whether the question was counted on the stream of a slot.
func (r *retirement) asked(s *slot) bool { return r.stream == s.id }

// tickRetirement counts a question if it is time to, so that the stream is checked.
func (c *Core) tickRetirement(now time.Time) {
	if at := c.retireAt(); !at.IsZero() && !at.After(now) && c.checks(&c.main) {
		c.retirement.stream, c.retirement.question = c.main.id, c.main.alive.question(now)
	}
}

// retireAt is when to check the main stream, or when it counts as alive without health checks.
// It is zero if there is nothing to do.
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

// retiring reports whether the slot's stream has to be checked before the group can end. The
// check is due at once.
func (c *Core) retiring(s *slot) bool {
	r := &c.retirement
	return s == &c.main && !r.since.IsZero() && r.asked(s) && !s.alive.answeredSince(r.question)
}
