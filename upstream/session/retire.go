package session

import "time"

// A group without clients ends as soon as its stream is alive (NODE-10). Until then its content
// may be all that is left of the last known good state, and clients that restart in an outage
// need it (G8).

// retirement is about a group without clients.
type retirement struct {
	retired time.Time // when Retire was called; zero: the group is in use
	stays   bool      // the group goes on without streams
}

// Retire has the group end as soon as its stream is alive. An open stream is checked at once, and
// a later one when it has been open for UnavailableAfter. A group that stays does not end: its streams
// close, as soon as nothing is wanted either.
func (r *retirement) Retire(stays bool, now time.Time) { r.retired, r.stays = now, stays }

// Stay revokes Retire, since there are clients again.
func (r *retirement) Stay() { *r = retirement{} }

// Over reports, once, that the group may end: the main stream is alive, or none is needed. Without
// health checks a stream that has been open for UnavailableAfter counts as alive.
func (c *Core) Over(now time.Time) bool {
	if c.stays || !c.mayEnd(now) {
		return false
	}
	c.Stay()
	return true
}

func (c *Core) mayEnd(now time.Time) bool {
	s, at := &c.main, c.retireAt()
	if !s.engaged() {
		return !c.retired.IsZero()
	}
	return due(at, now) && c.aliveAsOf(s, at)
}

// tickRest closes the streams of a group that stays and has no clients.
func (c *Core) tickRest(now time.Time) {
	if !c.stays || !c.mayEnd(now) || len(c.lanes()) > 0 {
		return
	}
	c.Stay()
	for _, s := range c.slots() { // tickProbes ends the probes
		c.shut(s)
		s.openAt, s.outage = time.Time{}, outage{}
	}
	c.dropTrial(now)
	clear(c.solo)
}

// retireAt is the time as of which the main stream must be alive before the group ends, or zero.
func (c *Core) retireAt() time.Time {
	s := &c.main
	switch {
	case c.retired.IsZero(), !s.open(), c.resorting():
		return time.Time{}
	case c.checks(s) && s.opened.Before(c.retired):
		return c.retired
	}
	return latest(c.retired, s.opened.Add(c.config.UnavailableAfter))
}
