package session

import "time"

// Whether anybody is at the other end of a stream (protocol.md §0, "alive"). That a
// connection is open says little: a process that hangs keeps it, and so does a network
// that drops packets. A stream is alive as of a question when a message came after it,
// or a health check that began after it was answered. Silence is a verdict only from
// such a stream (MISS-3).

// liveness is what is known of one stream. It dies with the stream.
type liveness struct {
	// asked counts the questions written: requests that ask for something. proven is
	// the last of them as of which the stream is alive.
	asked, proven uint64
	// since is when the first question after that was written; zero: there is none.
	since time.Time
	// heard is when the peer last showed itself, or the stream was opened.
	heard time.Time

	// The check under way: when it was asked for, after how many questions; zero: none.
	checking time.Time
	covers   uint64
	// notBefore is when the next one may be asked for.
	notBefore time.Time
	silent    bool // what the last check said, and nothing came since
}

// question notes that something was asked, and numbers it.
func (l *liveness) question(now time.Time) uint64 {
	if l.asked == l.proven {
		l.since = now
	}
	l.asked++
	return l.asked
}

// message notes that one came.
func (l *liveness) message(now time.Time) {
	l.proven, l.since, l.heard = l.asked, time.Time{}, now
	l.notBefore, l.silent = time.Time{}, false
}

// answeredSince: the stream is alive as of a question.
func (l *liveness) answeredSince(question uint64) bool { return l.proven >= question }

// dueAt is when to ask whether anybody is there, or zero. patience is for how long
// a question may stay without any sign of life, idle for how long the stream may be
// silent if nothing is asked; zero: for ever.
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

// check begins one.
func (l *liveness) check(now time.Time) { l.checking, l.covers = now, l.asked }

// checked takes in what came of it. A check that began before it was asked for, since
// another stream of the connection had asked, says nothing of what was asked later.
func (l *liveness) checked(c Check, now time.Time, again time.Duration) (silentSince time.Time) {
	asked := l.checking
	if asked.IsZero() {
		return silentSince
	}
	l.checking, l.notBefore = time.Time{}, now.Add(again)
	switch {
	case c.Begun.Before(asked): // ask once more, at once
		l.notBefore = now
	case c.Verdict == There && l.covers >= l.proven:
		l.proven, l.heard = l.covers, asked
		if l.since = (time.Time{}); l.asked > l.proven {
			l.since = asked // or later
		}
		l.notBefore, l.silent = time.Time{}, false
	case c.Verdict == Silent:
		l.silent = true
		if silentSince = asked; !l.since.IsZero() {
			silentSince = l.since
		}
	}
	return silentSince
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
	case c.retiring(s):
		patience = 0
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
			c.effects = append(c.effects, Effect{Stopped: "the control plane has stopped answering, though its connection is open", Entry: c.entries[s.entry].Name})
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
