package session

import (
	"time"
)

// When another control plane of the list is put to use (UP-14).

const (
	// steadyFor is how long a return has to last for the next one not to take longer.
	steadyFor = 10 * time.Minute
	// maxSteady bounds how long a preferred entry must have answered.
	maxSteady = 30 * time.Minute
)

// leave moves on from an entry that has not answered since it was chosen: it is left at
// its first failure.
func (c *Core) leave(now time.Time) {
	c.hushed = time.Time{} // it had its chance
	if len(c.entries) > 1 && !c.heard && !c.main.outage.noRoom {
		why := Stale
		if c.hub.Unresolved() {
			why = Waits
		}
		c.switchTo(c.following(), why, now)
	}
}

// failover moves on from the entry in use when it has been failing for long enough: not
// as long if clients wait for something.
func (c *Core) failover(now time.Time) {
	at := c.failoverAt(time.Time{})
	if at.IsZero() || at.After(now) {
		return
	}
	if !c.heard {
		c.leave(now)
		return
	}
	patient := c.config.FailoverAfter > 0 && !c.main.failingSince().Add(c.config.FailoverAfter).After(now)
	switch {
	case c.hub.Unresolved():
		c.switchTo(c.following(), Waits, now)
	case patient:
		c.switchTo(c.following(), Stale, now)
	}
}

// failoverAt is when failover is to look, after a time, or zero.
func (c *Core) failoverAt(after time.Time) (at time.Time) {
	since := c.main.failingSince()
	if len(c.entries) == 1 || since.IsZero() || c.main.outage.noRoom {
		return at
	}
	if !c.heard { // it is left at its first failure; an attempt that hangs is one by then
		if c.main.id == 0 || c.main.open() {
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

func (c *Core) following() int { return (c.current + 1) % len(c.entries) }

// left notes that an entry is not in use any more: a return that did not last makes the
// next one take longer.
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

// backAt is when a preferred entry, whose probe has a resource, may be returned to.
func (e *entry) backAt(c *Config) time.Time { return e.back.Add(max(e.steady, c.FailbackAfter)) }

// failback returns to a preferred entry.
func (c *Core) failback(i int, now time.Time) {
	e := &c.entries[i]
	e.backoff, e.notBefore = c.config.Backoff, time.Time{}
	c.switchTo(i, Preferred, now)
	e.returned = now
}
