package session

import (
	"time"
)

// This file decides when the relay switches to another control plane of the list (UP-14).

const (
	// steadyFor is how long a preferred entry must stay in use after a switch back to it. If it
	// does not, the next switch back takes longer.
	steadyFor = 10 * time.Minute
	// maxSteady bounds how long a preferred entry must have answered before a switch back.
	maxSteady = 30 * time.Minute
)

// leave switches to the next entry at the first failure of one that has not answered since it
// was put in use.
func (c *Core) leave(now time.Time) {
	c.quietUntil = time.Time{} // the entry had the time to answer
	if c.mayFollow() && !c.heard {
		c.follow(now)
	}
}

// failover switches to the next entry when the one in use has been failing for
// FailoverAfter, or only for UnavailableAfter if clients wait for something.
func (c *Core) failover(now time.Time) {
	if c.resort(now) || !due(c.failoverAt(time.Time{}), now) {
		return
	}
	if !c.heard {
		c.leave(now)
		return
	}
	long := c.config.FailoverAfter > 0 && !c.main.failingSince().Add(c.config.FailoverAfter).After(now)
	if long || c.hub.Unresolved() {
		c.follow(now)
	}
}

// failoverAt is when failover has something to do, later than a time, or zero.
func (c *Core) failoverAt(after time.Time) (at time.Time) {
	since := c.main.failingSince()
	if since.IsZero() || !c.mayFollow() {
		return at
	}
	if !c.heard { // leave handles a failed attempt; one that hangs counts as failed after UnavailableAfter
		if !c.main.opening() {
			return at
		}
		since = c.main.attempt
	}
	if first := since.Add(c.config.UnavailableAfter); first.After(after) {
		at = first
	}
	if last := since.Add(c.config.FailoverAfter); c.config.FailoverAfter > 0 && last.After(after) {
		at = earlier(at, last)
	}
	return at
}

// mayFollow reports whether another entry can be put in use for the failure of this one.
func (c *Core) mayFollow() bool {
	return c.ordinary() > 1 && !c.resorting() && c.main.outage.last.Kind != EndNoRoom
}

// follow switches to the next entry; after the last one that is no last resort comes the first.
func (c *Core) follow(now time.Time) {
	why := Stale
	if c.hub.Unresolved() {
		why = Waits
	}
	c.entry().fails = true
	c.switchTo((c.current+1)%c.ordinary(), why, now)
}

// left notes that an entry is not in use any more. If the relay had switched back to it less
// than steadyFor ago, the next switch back takes longer.
func (e *entry) left(c *Config, now time.Time) {
	switch {
	case e.returned.IsZero():
		return
	case now.Sub(e.returned) < steadyFor:
		e.steady = min(2*max(e.steady, c.FailbackAfter), maxSteady)
	default:
		e.steady = 0
	}
	e.returned = time.Time{}
}

// backAt is when the relay may switch back to a preferred entry whose probe has a resource.
func (e *entry) backAt(c *Config) time.Time { return e.back.Add(max(e.steady, c.FailbackAfter)) }

func (c *Core) failback(i int, now time.Time) {
	e := &c.entries[i]
	e.attempts, e.notBefore = attempts{}, time.Time{}
	filled := c.resorting()
	c.switchTo(i, Preferred, now)
	if filled {
		c.afterSwitch = false // what the last resort has filled is worth no guard
	}
	e.returned = now
}
