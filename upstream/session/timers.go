package session

import (
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// timers has the times since when a stream has been waiting for answers to names. It ends with
// the stream (ERR-4).
type timers struct {
	// missing has the does-not-exist timers, in order of time (MISS-3).
	missing []nameTimer
	// overdue has the timers of names that lead to unconfirmed resources, in order of time
	// (RECON-12).
	overdue []overdueTimer
}

// nameTimer is the timer of the names that one request has subscribed.
type nameTimer struct {
	written  time.Time
	question uint64 // the number of the request (liveness)
	lane     *laneState
	names    []string
}

// current returns the names that were neither given up nor subscribed by a later request.
func (t *nameTimer) current() (names []string) {
	for _, name := range t.names {
		at, sent := t.lane.sent[name]
		if !sent {
			at = t.lane.unanswered.unsubscribed[name]
		}
		if at.Equal(t.written) {
			names = append(names, name)
		}
	}
	return names
}

type overdueTimer struct {
	nameTimer
	at time.Time
}

// deadline is when the next timer runs out, or zero. missing is how long the does-not-exist
// timers run. It may change while they do, when the server identifies itself as a relay (MISS-5).
func (t *timers) deadline(missing time.Duration, alive *liveness, now time.Time) (at time.Time) {
	if len(t.missing) > 0 {
		if at = t.missing[0].written.Add(missing); !at.After(now) && !alive.answeredSince(t.missing[0].question) {
			at = time.Time{} // the timer runs on until the stream is alive
		}
	}
	if len(t.overdue) > 0 {
		at = earlier(at, t.overdue[0].at)
	}
	return at
}

// missingOver reports whether the first of the does-not-exist timers is over. It runs on until the stream is alive.
func (t *timers) missingOver(missing time.Duration, alive liveness, now time.Time) bool {
	if len(t.missing) == 0 || t.missing[0].written.Add(missing).After(now) {
		return false
	}
	return alive.answeredSince(t.missing[0].question)
}

// tickTimers handles the timers of a stream that have run out. The Hub knows which of the names
// were answered.
func (c *Core) tickTimers(s *slot, now time.Time) {
	t := &s.stream.timers
	for t.missingOver(c.missingAfter(), s.alive, now) {
		first := t.missing[0]
		t.missing = t.missing[1:]
		if names := first.current(); len(names) > 0 {
			c.missing(s, first.lane, names, now)
		}
	}
	for len(t.overdue) > 0 && !t.overdue[0].at.After(now) {
		first := t.overdue[0]
		t.overdue = t.overdue[1:]
		first.names = first.current()
		if first.lane.answered && !c.explicitMissing() { // silence about a whole type proves nothing about these names (MISS-5)
			first.names = c.overdue(s, first.lane, first.names, now)
		}
		if len(first.names) > 0 {
			first.at = now.Add(c.config.MissingExplicit)
			t.overdue = append(t.overdue, first)
		}
	}
}

// missing handles names about which the server has been silent for too long.
func (c *Core) missing(s *slot, l *laneState, names []string, now time.Time) {
	l.globs.forget(names)
	if c.explicitMissing() {
		c.learned(s, l.lane, &cache.Update{Unanswered: names}, now)
	} else {
		c.learned(s, l.lane, &cache.Update{Missing: names, Unproven: !s.stream.used[l.lane.Type].spoke}, now)
		for _, name := range names {
			delete(l.unanswered.unsubscribed, name) // a removal counts from now
		}
		// Some may count as delivered only since tickUnanswered looked at them.
		_, delivered := c.hub.Of(l.lane.Type).Silent(names, uint64(s.id))
		l.unanswered.delivered = append(l.unanswered.delivered, delivered...)
		s.outage.suspend() // a solo stream that has lasted for so long is not refused (H-39)
	}
	s.stream.wake(l)
	s.wakeShown()
	l.unanswered.lookSoon(now)
}

// overdue handles names that may still lead to unconfirmed resources. It returns those to look at
// later.
func (c *Core) overdue(s *slot, l *laneState, names []string, now time.Time) (later []string) {
	early, names := c.hub.Of(l.lane.Type).Early(names, uint64(s.id))
	l.unanswered.delivered = append(l.unanswered.delivered, early...)
	s.stream.wake(l)
	names, later = c.hub.Of(l.lane.Type).Overdue(names, uint64(s.id))
	if len(names) > 0 {
		e := c.entryOf(s)
		e.ignoresVersions = e.ignoresVersions || e.bare // as in sweeps
		c.learned(s, l.lane, &cache.Update{Overdue: names}, now)
		s.stream.wake(l)
		l.unanswered.lookSoon(now)
	}
	return later
}

// earlier returns the earliest of some times, where zero means never.
func earlier(times ...time.Time) (at time.Time) {
	for _, t := range times {
		switch {
		case t.IsZero():
		case at.IsZero(), t.Before(at):
			at = t
		}
	}
	return at
}

// due reports whether a time has come, where zero means never.
func due(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }

// latest returns the later of two times.
func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// toCome returns at if it is in the future, and zero otherwise.
func toCome(at, now time.Time) time.Time {
	if at.After(now) {
		return at
	}
	return time.Time{}
}
