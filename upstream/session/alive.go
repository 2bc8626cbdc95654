package session

import (
	"cmp"
	"time"
)

// This file decides whether a stream is alive (protocol.md §0, "alive"). An open connection
// proves little: a process that hangs keeps it open, and so does a network that drops packets.
// A stream is alive as of a question when a message came after it, or when the peer answered a
// health check that began after it. Silence counts only on such a stream (MISS-3).

// liveness says whether one stream is alive. It ends with the stream.
type liveness struct {
	// asked counts the questions: the requests that subscribe to something. proven is the
	// last question as of which the stream is alive.
	asked, proven uint64
	// since is when the first question after proven was written; zero: there is none.
	since time.Time
	// heard is when the peer last gave a sign of life, or the stream was opened.
	heard time.Time

	// checking is when the health check under way was requested, or zero, and covers the
	// number of questions before it.
	checking time.Time
	covers   uint64
	// notBefore is when the next check may be requested.
	notBefore time.Time
	stopped   bool // the last check was not answered, and nothing has come since
}

// question counts a question, and returns its number.
func (l *liveness) question(now time.Time) uint64 {
	if l.asked == l.proven {
		l.since = now
	}
	l.asked++
	return l.asked
}

// message notes that a message came.
func (l *liveness) message(now time.Time) {
	l.proven, l.since, l.heard = l.asked, time.Time{}, now
	l.notBefore, l.stopped = time.Time{}, false
}

// answeredSince reports whether the stream is alive as of a question.
func (l *liveness) answeredSince(question uint64) bool { return l.proven >= question }

// unproven reports whether a check is under way for a question that is not answered.
func (l *liveness) unproven() bool {
	return !l.stopped && !l.checking.IsZero() && !l.since.IsZero()
}

// dueAt is when to request a check, or zero. patience is how long a question may be without
// any sign of life, and idle how long the stream may be silent when nothing is asked; zero
// means for ever.
func (l *liveness) dueAt(patience, idle time.Duration) (at time.Time) {
	if !l.checking.IsZero() {
		return at
	}
	if !l.since.IsZero() {
		at = l.since.Add(patience)
	}
	if idle > 0 {
		at = earlier(at, l.heard.Add(idle))
	}
	if !at.IsZero() {
		at = latest(at, l.notBefore)
	}
	return at
}

// check notes that a health check is requested.
func (l *liveness) check(now time.Time) { l.checking, l.covers = now, l.asked }

// checked handles the result of a check. The streams of a connection share checks, so that the
// check may have begun before this stream requested one. Then it proves nothing here, and the
// next one is due at once.
func (l *liveness) checked(c Check, now time.Time, again time.Duration) (silentSince time.Time) {
	asked := l.checking
	if asked.IsZero() {
		return silentSince
	}
	l.checking, l.notBefore = time.Time{}, now.Add(again)
	switch {
	case c.Begun.Before(asked):
		l.notBefore = now
	case c.Result == There && l.covers >= l.proven:
		l.proven, l.heard = l.covers, asked
		if l.since = (time.Time{}); l.asked > l.proven {
			l.since = asked // or later
		}
		l.notBefore, l.stopped = time.Time{}, false
	case c.Result == Silent:
		l.stopped = true
		if silentSince = asked; !l.since.IsZero() {
			silentSince = l.since
		}
	}
	return silentSince
}

// tickAlive requests a health check if one is due (protocol.md §0, MISS-3).
func (c *Core) tickAlive(s *slot, now time.Time) {
	switch {
	case !due(c.aliveAt(s), now):
	case c.checks(s):
		s.alive.check(now)
		c.emit(CheckDue{Stream: s.id, Timeout: c.config.patience()})
	default: // a stream that has been open for so long counts as alive (ERR-1)
		s.alive.notBefore = now.Add(c.config.UnavailableAfter)
		s.outage.suspend()
		s.wakeShown()
	}
}

// checks reports whether health checks are sent to the entry of a slot.
func (c *Core) checks(s *slot) bool { return c.config.HealthCheck && !c.entryOf(s).unchecked }

// Patience is how long the entry in use may take to answer a health check. If checks is false it is
// sent none, and a stream that lasts for so long counts as alive.
func (c *Core) Patience() (patience time.Duration, checks bool) {
	if c.checks(&c.main) {
		return c.config.patience(), true
	}
	return c.config.UnavailableAfter, false
}

// aliveAt is when tickAlive has something to do, or zero. A probe has had a resource: one that gets
// none is given up without a check.
func (c *Core) aliveAt(s *slot) time.Time {
	if !s.open() {
		return time.Time{}
	}
	patience := c.config.patience()
	switch {
	case !c.checks(s):
		if !s.outage.on() || s.outage.suspended {
			return time.Time{}
		}
		patience = c.config.UnavailableAfter
	case s.role == Trial:
		patience = min(patience, trial) // the trial is over when the check is answered (UP-21)
	case s.role == Probe && !s.alive.checking.IsZero():
		return time.Time{}
	case s.role == Probe:
		return latest(c.entryOf(s).backAt(&c.config), s.alive.notBefore)
	case s.fails() && !s.alive.since.IsZero():
		// The check is early enough to suspend the outage before clients learn of it, if the
		// server is there and has nothing to send (ERR-1).
		told := s.failingSince().Add(c.config.UnavailableAfter - trial).Sub(s.alive.since)
		patience = min(patience, max(told, trial))
	}
	return s.alive.dueAt(patience, c.idle(s))
}

// idle returns how long a stream may be silent, while nothing is asked, before it is checked; zero
// means for ever.
func (c *Core) idle(s *slot) (idle time.Duration) {
	end := c.retireAt()
	switch {
	case !c.checks(s):
		return 0
	case s.role == Main && s.alive.heard.Before(end):
		return end.Sub(s.alive.heard)
	case len(c.entries) > 1:
		idle = c.config.FailoverAfter / 2
	}
	if every := c.config.AliveEvery; s.role == Main && every > 0 {
		idle = min(cmp.Or(idle, every), every)
	}
	return idle
}

// Alive returns when the control plane was last known to be alive, by a stream of the group; zero:
// never. Without health checks a stream that has been open for UnavailableAfter counts as alive.
func (c *Core) Alive(now time.Time) time.Time {
	s := &c.main
	unchecked := s.works() && !c.checks(s)
	if unchecked && now.Sub(s.opened) >= c.config.UnavailableAfter {
		return now
	}
	return c.alive
}

// Checked handles the result of a check of a stream's connection.
func (c *Core) Checked(id StreamID, k Check, now time.Time) {
	s := c.slot(id)
	if !s.open() {
		return
	}
	silentSince := s.alive.checked(k, now, c.config.patience())
	defer s.wakeShown()
	switch k.Result {
	case Blind:
		c.entryOf(s).unchecked = true
	case Silent:
		c.foundSilent(s, silentSince, now)
	case There:
		if s.role == Probe || c.resorting() {
			return
		}
		c.alive = latest(c.alive, s.alive.heard)
		if s.role != Solo { // a solo stream works when it answers, or its silence counts (missing)
			s.outage.suspend()
		}
	}
}

// foundSilent handles a check that was not answered; since is zero if the stream is to be checked again.
func (c *Core) foundSilent(s *slot, since, now time.Time) {
	switch {
	case s.role == Probe:
		c.shut(s)
		c.probeLater(c.entryOf(s), now)
	case !since.IsZero():
		if s.outage.last.Message != stopped {
			c.emit(Stopped{Entry: c.entryOf(s).Name})
		}
		if s.outage.begin(since, End{Message: stopped}); s.role == Main {
			c.leave(now)
		}
	}
}

// aliveAsOf reports whether the peer of a stream has given a sign of life since a time, as far as one is asked for.
func (c *Core) aliveAsOf(s *slot, at time.Time) bool {
	return !c.checks(s) || !s.alive.heard.Before(at)
}

// tellAlive tells the Hub when the main stream fails, and when it works again (H-22).
func (c *Core) tellAlive(now time.Time) {
	if away := !c.main.works(); away != c.away {
		c.away = away
		c.emit(Liveness{!away, now})
	}
}
