package session

import (
	"slices"
	"time"
)

// outage is the time for which one stream of a control plane has been failing (ERR-1). It
// begins with the first failure after the last response, and ends with a response. A new
// stream does not end it, since a proxy accepts streams for a control plane that is away. A
// stream that is alive but silent suspends it, since the control plane may have nothing to
// send. If that stream ends without a response, the outage goes on from its first failure.
type outage struct {
	since     time.Time // zero: there is no outage
	suspended bool      // ends with the stream
	last      End       // the last failure
}

// on reports whether there is an outage, suspended or not.
func (o *outage) on() bool { return !o.since.IsZero() }

// suspend notes that the stream is alive, though silent.
func (o *outage) suspend() { o.suspended = o.on() }

// begin notes a failure. The outage begins with the earliest of its failures.
func (o *outage) begin(at time.Time, end End) {
	if !o.on() || at.Before(o.since) {
		o.since = at
	}
	o.suspended, o.last = false, end
}

// failingSince is when the slot's outage began, or zero. An attempt to open a stream counts as
// failing until the stream is open.
func (s *slot) failingSince() time.Time {
	switch {
	case s.outage.suspended:
		return time.Time{}
	case !s.outage.on() && s.opening():
		return s.attempt
	}
	return s.outage.since
}

// fails reports whether the slot has an outage that counts.
func (s *slot) fails() bool { return !s.failingSince().IsZero() }

// works reports whether there is a stream, and no outage that counts.
func (s *slot) works() bool { return s.open() && !s.fails() }

// lasted reports whether a stream that is open has been so for trial.
func (s *slot) lasted(now time.Time) bool { return now.Sub(s.opened) >= trial }

// stopped is the message about a peer that does not answer a health check.
const stopped = "it has stopped answering, though its connection is open"

// ended notes how a stream, or an attempt to open one, has ended. If the connection broke during a
// health check, the failure began with the first unanswered question.
func (s *slot) ended(end End, now time.Time) {
	at := now
	switch {
	case !s.open():
		at = s.attempt
	case s.alive.unproven() && !end.Refused():
		at = s.alive.since
	}
	s.outage.begin(at, end)
}

// Proven reports whether a stream works, so that the control plane is there: it has no outage, and
// has had a response or lasted for trial. Until then names that linger may be all that is left of the
// last known good state (UP-7, G8).
func (c *Core) Proven(now time.Time) bool {
	if c.resorting() {
		return false
	}
	return slices.ContainsFunc(c.slots(), func(s *slot) bool {
		return s.works() && (s.answered || s.lasted(now))
	})
}

// lingering says whether names that linger are dropped.
type lingering struct {
	keepsLingering bool      // the Hub was last told to keep them
	lingerAt       time.Time // when to call Hub.Expire next
}

// tickLinger has the Hub drop names that have lingered for long enough. The Hub keeps them
// while nothing proves that the control plane is there.
func (c *Core) tickLinger(now time.Time) {
	if proven := c.Proven(now); proven == c.keepsLingering {
		c.keepsLingering = !proven
		c.hub.KeepLingering(c.keepsLingering)
	}
	if !c.keepsLingering && !c.lingerAt.After(now) {
		c.lingerAt = c.hub.Expire(now)
	}
}
