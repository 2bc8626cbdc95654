package session

import (
	"slices"
	"time"
)

// How long the control plane has been failing, as far as one of its streams tells
// (ERR-1): since the first failure after the last response. That a stream opens ends
// nothing, since a proxy accepts streams for a control plane that is away; a response
// does. A stream that says nothing, and is alive, suspends the failing: somebody is
// there, and has nothing to say. If it ends without a response the failing goes on as if
// it never had been suspended.
type outage struct {
	since     time.Time // zero: it works
	suspended bool      // dies with the stream
	message   string    // of the last failure
	noRoom    bool      // that was: no connection takes the stream (UP-1)
	denied    bool      // that was: it does not let the relay in
}

// begin notes a failure that began at a time.
func (o *outage) begin(at time.Time, message string) {
	if o.since.IsZero() || at.Before(o.since) {
		o.since = at
	}
	o.suspended, o.noRoom, o.denied, o.message = false, false, false, message
}

// failingSince is since when a slot has been failing, or zero. An attempt that is under
// way fails until it is through.
func (s *slot) failingSince() time.Time {
	switch {
	case s.outage.suspended:
		return time.Time{}
	case s.outage.since.IsZero() && s.id != 0 && !s.open():
		return s.attempt
	}
	return s.outage.since
}

// stopped is what is said of a peer that does not answer a check.
const stopped = "it has stopped answering, though its connection is open"

// ended notes how a slot's stream or attempt has ended. If nothing was heard while
// somebody looked after what had been asked, the failure began when it was.
func (s *slot) ended(end End, now time.Time) {
	switch {
	case end.NoRoom && s.open():
		return // it makes room for others
	case !s.open():
		s.outage.begin(s.attempt, end.Message)
		s.outage.noRoom = end.NoRoom
	case s.alive.silent:
		s.outage.begin(now, stopped) // and the connection was given up
	case !end.Refused && !s.alive.checking.IsZero() && !s.alive.since.IsZero():
		s.outage.begin(s.alive.since, end.Message)
	default:
		s.outage.begin(now, end.Message)
	}
	s.outage.denied = end.Denied
}

// failing: it has been for so long that clients are told (ERR-7).
func (s *slot) failing(c *Config, now time.Time) bool {
	since := s.failingSince()
	return !since.IsZero() && now.Sub(since) >= c.UnavailableAfter
}

// Proven: the control plane is there, since a stream works. Until then an outage goes
// on, and what lingers may be all there is of the last known good state (UP-7, G8).
func (c *Core) Proven(now time.Time) bool {
	return slices.ContainsFunc(c.slots(), func(s *slot) bool { return s.proven(now) })
}

// proven: the stream has answered, or has outlived what ends one at once, and nothing
// is known to be wrong with it.
func (s *slot) proven(now time.Time) bool {
	return s.open() && s.failingSince().IsZero() && (s.answered || now.Sub(s.opened) >= trial)
}

// tickLinger has the Hub give up what has lingered for long enough, which it spares while
// nothing proves that the control plane is there.
func (c *Core) tickLinger(now time.Time) {
	if proven := c.Proven(now); proven == c.spares {
		c.spares = !proven
		c.hub.Spare(c.spares)
	}
	if !c.spares && !c.lingerAt.After(now) {
		c.lingerAt = c.hub.Expire(now)
	}
}
