package session

import (
	"time"
)

// The last entry may be a last resort (UP-26). It is used only when all others fail and a client waits for something
// of which there is no copy, and only for that. While it is in use, the outage of the others goes on: nothing that
// it says shows that a control plane is there, and nothing is given up or removed because of it.

// resorting reports whether the last resort is in use.
func (r *ranking) resorting() bool { return r.entry().LastResort }

// ordinary is the number of entries that are no last resort. They stand before it.
func (r *ranking) ordinary() int {
	n := len(r.entries)
	if r.entries[n-1].LastResort {
		n--
	}
	return n
}

// resort switches to the last resort when it is due, and reports whether it did.
func (c *Core) resort(now time.Time) bool {
	last := c.ordinary()
	switch {
	case c.resorting(), last == len(c.entries), !due(c.resortAt(), now):
	case c.hub.Lacks():
		c.switchTo(last, Waits, now)
		c.quietUntil = now.Add(c.config.quiet())
		return true
	}
	return false
}

// resortAt is when every ordinary entry will have failed for UnavailableAfter, or zero.
func (c *Core) resortAt() time.Time {
	since := c.main.failingSince()
	if since.IsZero() || c.main.outage.last.Kind == EndNoRoom {
		return time.Time{}
	}
	for i, e := range c.entries[:c.ordinary()] {
		switch hangs := i == c.current && c.main.id != 0; {
		case e.fails:
		case hangs:
			since = latest(since, c.main.attempt)
		default: // it was not tried, or has answered since
			return time.Time{}
		}
	}
	return since.Add(c.config.UnavailableAfter)
}

// hearsLastResort takes in what a response of the last resort shows: only how to understand it.
func (c *Core) hearsLastResort(s *slot, d *Response, now time.Time) {
	s.answered, c.heard = true, true
	s.alive.message(now)
	c.identifies(d.identifier)
}
