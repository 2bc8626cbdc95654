package upstream

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
}

// begin notes a failure that began at a time.
func (o *outage) begin(at time.Time, message string) {
	if o.since.IsZero() || at.Before(o.since) {
		o.since = at
	}
	o.suspended, o.noRoom, o.message = false, false, message
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
}

// failing: it has been for so long that clients are told (ERR-7).
func (s *slot) failing(c *Config, now time.Time) bool {
	since := s.failingSince()
	return !since.IsZero() && now.Sub(since) >= c.UnavailableAfter
}

// proven: the control plane is there, since a stream works. Until then an outage goes
// on, and what lingers may be all there is of the last known good state (UP-7, G8).
func (c *Core) proven(now time.Time) bool {
	return slices.ContainsFunc(c.slots(), func(s *slot) bool { return s.proven(now) })
}

// proven: the stream has answered, or has outlived what ends one at once, and nothing
// is known to be wrong with it.
func (s *slot) proven(now time.Time) bool {
	return s.open() && s.failingSince().IsZero() && (s.answered || now.Sub(s.opened) >= trial)
}

// tickAlive asks whether anybody is there, if it is time to (protocol.md §0, MISS-3).
func (c *Core) tickAlive(s *slot, now time.Time) {
	at := c.aliveAt(s)
	switch {
	case at.IsZero() || at.After(now):
	case c.checks(s):
		s.alive.check(now)
		c.effects = append(c.effects, Effect{Check: s.id, Timeout: c.config.patience()})
	default: // a stream that has been open for so long counts as alive (ERR-1)
		s.alive.notBefore = now.Add(c.config.UnavailableAfter)
		s.outage.suspended = s.outage.suspended || !s.outage.since.IsZero()
	}
}

// checks: there is a use in asking.
func (c *Core) checks(s *slot) bool { return c.config.HealthCheck && !c.entries[s.entry].unchecked }

// aliveAt is when to ask whether anybody is there, or zero.
func (c *Core) aliveAt(s *slot) time.Time {
	if !s.open() {
		return time.Time{}
	}
	patience, idle := c.config.patience(), time.Duration(0)
	switch {
	case !c.checks(s):
		if s.outage.since.IsZero() || s.outage.suspended {
			return time.Time{}
		}
		patience = c.config.UnavailableAfter
	case s.role == Probe && !s.answered:
		return time.Time{} // it is given up if it gets no resource
	case s.role == Probe:
		return latest(c.entries[s.entry].backAt(&c.config), s.alive.notBefore)
	case !s.failingSince().IsZero() && !s.alive.since.IsZero():
		// In time for clients not to be told, if all that it has is nothing to say (ERR-1).
		told := s.failingSince().Add(c.config.UnavailableAfter - trial).Sub(s.alive.since)
		patience = min(patience, max(told, trial))
	}
	if c.checks(s) && len(c.entries) > 1 {
		idle = c.config.FailoverAfter / 2
	}
	return s.alive.dueAt(patience, idle)
}

// Checked takes in what came of the check of a stream's connection.
func (c *Core) Checked(id StreamID, k Check, now time.Time) {
	s := c.slot(id)
	if s == nil || !s.open() {
		return
	}
	silentSince := s.alive.checked(k, now, c.config.patience())
	switch {
	case k.Verdict == Blind:
		c.entries[s.entry].unchecked = true
	case s.role == Probe && k.Verdict == Silent:
		c.shut(s)
		c.probeLater(&c.entries[s.entry], now)
	case !silentSince.IsZero():
		if s.outage.message != stopped {
			c.effects = append(c.effects, Effect{Notice: "the control plane has stopped answering, though its connection is open", Entry: c.entries[s.entry].Name})
		}
		if s.outage.begin(silentSince, stopped); s.role == Main {
			c.leave(now)
		}
	case k.Verdict == There && s.role != Solo: // a solo stream works when it answers
		s.outage.suspended = !s.outage.since.IsZero()
	}
}

// tellAlive lets the Hub know whether the main stream is alive (H-22).
func (c *Core) tellAlive(now time.Time) {
	if away := !c.main.open() || !c.main.failingSince().IsZero(); away != c.away {
		c.away = away
		c.effects = append(c.effects, Effect{Alive: now, Away: away})
	}
}

// Back says that an entry answers another group again: nobody has to back off from it any
// more, but for those whom it has refused. They do not all come at once (ERR-1).
func (c *Core) Back(entry int, now time.Time) {
	e := &c.entries[entry]
	soon := func(s *slot) {
		if s.id == 0 && !s.openAt.IsZero() && !s.refused {
			at := now.Add(time.Duration(c.random() * float64(reconnectFloor)))
			s.openAt = earlier(s.openAt, latest(at, s.attempt.Add(reconnectFloor)))
		}
	}
	switch {
	case entry < c.current:
		soon(&e.probe)
	case entry == c.current:
		soon(&c.main)
		soon(&c.aux)
	}
	if entry != c.current || !c.main.refused {
		e.backoff, e.notBefore = c.config.Backoff, time.Time{}
	}
}
