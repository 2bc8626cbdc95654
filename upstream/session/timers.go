package session

import (
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// timers are how long a stream has been waiting for answers to names. They die
// with it (ERR-4).
type timers struct {
	// missing are the does-not-exist timers, in order of time (MISS-3).
	missing []nameTimer
	// overdue are those of names that lead to something unconfirmed, in order of time
	// (RECON-12).
	overdue []overdueTimer
}

type nameTimer struct {
	written  time.Time
	question uint64 // that asked for them (liveness)
	lane     *laneState
	names    []string
}

// current are those of the names that were not given up and asked for again since.
func (t *nameTimer) current() (names []string) {
	for _, name := range t.names {
		if t.lane.sent[name].Equal(t.written) {
			names = append(names, name)
		}
	}
	return names
}

// counts: silence is a verdict, since the stream is alive as of the question (MISS-3).
func (t *nameTimer) counts(alive *liveness) bool { return alive.answeredSince(t.question) }

type overdueTimer struct {
	nameTimer
	at time.Time
}

// deadline is when the next timer runs out, or zero. How long the does-not-exist
// timers run may change while they do, when the server says what it is (MISS-5).
func (t *timers) deadline(missing time.Duration, alive *liveness, now time.Time) (at time.Time) {
	if len(t.missing) > 0 {
		if at = t.missing[0].written.Add(missing); !at.After(now) && !t.missing[0].counts(alive) {
			at = time.Time{} // until the stream turns out to be alive
		}
	}
	if len(t.overdue) > 0 {
		at = earlier(at, t.overdue[0].at)
	}
	return at
}

// tickTimers takes in the silence about names that have been asked for on a stream. The Hub
// knows which of them were answered.
func (c *Core) tickTimers(s *slot, now time.Time) {
	t := &s.stream.timers
	for len(t.missing) > 0 && !t.missing[0].written.Add(c.missingAfter()).After(now) && t.missing[0].counts(&s.alive) {
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
		if first.lane.answered { // a server that says nothing at all of the type says nothing of these
			first.names = c.overdue(s, first.lane, first.names, now)
		}
		if len(first.names) > 0 {
			first.at = now.Add(c.config.MissingExplicit)
			t.overdue = append(t.overdue, first)
		}
	}
}

// missing takes in that nothing was said of some names for too long.
func (c *Core) missing(s *slot, l *laneState, names []string, now time.Time) {
	if c.explicitMissing() {
		c.learned(s, l.lane, &cache.Update{Unanswered: names}, now)
	} else {
		c.learned(s, l.lane, &cache.Update{Missing: names, Mute: !s.stream.used[l.lane.Type].spoke}, now)
		// Some may have come to count as shown since they were looked at.
		_, shown := c.hub.Of(l.lane.Type).Silent(names, uint64(s.id))
		l.unanswered.refreshFor(shown)
	}
	l.unanswered.mayLack(now)
}

// overdue takes in that some names still lead to what is unconfirmed. It returns those to look
// at later.
func (c *Core) overdue(s *slot, l *laneState, names []string, now time.Time) (later []string) {
	early, names := c.hub.Of(l.lane.Type).Early(names, uint64(s.id))
	l.unanswered.refreshFor(early)
	names, later = c.hub.Of(l.lane.Type).Overdue(names, uint64(s.id))
	if len(names) > 0 {
		c.sweepsNames(s)
		c.learned(s, l.lane, &cache.Update{Overdue: names}, now)
		l.unanswered.mayLack(now)
	}
	return later
}
