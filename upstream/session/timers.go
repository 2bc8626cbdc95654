package session

import (
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
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

// start begins to wait for names that were asked for just now.
func (t *timers) start(l *laneState, names []string, question uint64, now time.Time) {
	t.missing = append(t.missing, nameTimer{now, question, l, names})
}

// resync begins to wait for what is here already, but unconfirmed.
func (t *timers) resync(l *laneState, names []string, now time.Time, c *Config) {
	if len(names) > 0 {
		t.overdue = append(t.overdue, overdueTimer{nameTimer{written: now, lane: l, names: names}, now.Add(c.MissingExplicit)})
	}
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

// expired are the names that have gone unanswered for too long, lane by lane. The
// Hub knows which of them were answered.
func (t *timers) expired(after, explicit time.Duration, alive *liveness, now time.Time,
	missing func(fanout.Lane, []string), overdue func(fanout.Lane, []string) (later []string)) {
	for len(t.missing) > 0 && !t.missing[0].written.Add(after).After(now) && t.missing[0].counts(alive) {
		first := t.missing[0]
		t.missing = t.missing[1:]
		if names := first.current(); len(names) > 0 {
			missing(first.lane.lane, names)
		}
	}
	for len(t.overdue) > 0 && !t.overdue[0].at.After(now) {
		first := t.overdue[0]
		t.overdue = t.overdue[1:]
		first.names = first.current()
		if first.lane.answered { // a server that says nothing at all of the type says nothing of these
			first.names = overdue(first.lane.lane, first.names)
		}
		if len(first.names) > 0 {
			first.at = now.Add(explicit)
			t.overdue = append(t.overdue, first)
		}
	}
}

// tickTimers takes in the silence about names that have been asked for on a stream.
func (c *Core) tickTimers(s *slot, now time.Time) {
	learned := func(lane fanout.Lane, u *cache.Update) { c.learned(s, lane, u, now) }
	s.stream.timers.expired(c.missingAfter(), c.config.MissingExplicit, &s.alive, now, func(lane fanout.Lane, names []string) {
		if c.explicitMissing() {
			learned(lane, &cache.Update{Unanswered: names})
		} else {
			learned(lane, &cache.Update{Missing: names, Mute: !s.stream.used[lane.Type].spoke})
			// Some may have come to count as shown since they were looked at.
			_, shown := c.hub.Silent(lane.Type, names, uint64(s.id))
			s.stream.lanes[lane.Type].unanswered.refreshFor(shown)
		}
		s.stream.lanes[lane.Type].unanswered.mayLack(now)
	}, func(lane fanout.Lane, names []string) (later []string) {
		early, names := c.hub.Early(lane.Type, names, uint64(s.id))
		s.stream.lanes[lane.Type].unanswered.refreshFor(early)
		names, later = c.hub.Overdue(lane.Type, names, uint64(s.id))
		if len(names) > 0 {
			c.sweepsNames(s)
			learned(lane, &cache.Update{Overdue: names})
			s.stream.lanes[lane.Type].unanswered.mayLack(now)
		}
		return later
	})
}
