package upstream

import (
	"time"

	"github.com/xds-relay/xds-relay/fanout"
)

// timers are how long a stream has been waiting for answers to names. They die
// with it (ERR-4).
type timers struct {
	// missing are the does-not-exist timers, in order of time (MISS-3).
	missing []nameTimer
	// overdue are those of names asked for without the versions that are here, in
	// order of time (RECON-12).
	overdue []overdueTimer
}

type nameTimer struct {
	written time.Time
	lane    *laneState
	names   []string
}

type overdueTimer struct {
	at    time.Time
	lane  *laneState
	names []string
}

// start begins to wait for names that were asked for just now.
func (t *timers) start(l *laneState, names []string, now time.Time) {
	if len(names) > 0 {
		t.missing = append(t.missing, nameTimer{now, l, names})
	}
}

// resync begins to wait for names that are here already, but unconfirmed.
func (t *timers) resync(l *laneState, names []string, now time.Time, c *Config) {
	if len(names) > 0 {
		t.overdue = append(t.overdue, overdueTimer{now.Add(c.MissingExplicit), l, names})
	}
}

// deadline is when the next timer runs out, or zero. How long the does-not-exist
// timers run may change while they do, when the server says what it is (MISS-5).
func (t *timers) deadline(c *Config) (at time.Time) {
	if len(t.missing) > 0 {
		at = t.missing[0].written.Add(c.missingAfter())
	}
	if len(t.overdue) > 0 {
		at = earlier(at, t.overdue[0].at)
	}
	return at
}

// expired are the names that have gone unanswered for too long, lane by lane. The
// Hub knows which of them were answered.
func (t *timers) expired(c *Config, now time.Time, missing, overdue func(fanout.Lane, []string)) {
	for len(t.missing) > 0 && !t.missing[0].written.Add(c.missingAfter()).After(now) {
		first := t.missing[0]
		t.missing = t.missing[1:]
		var names []string
		for _, name := range first.names {
			if first.lane.sent[name].Equal(first.written) {
				names = append(names, name)
			}
		}
		if len(names) > 0 {
			missing(first.lane.lane, names)
		}
	}
	for len(t.overdue) > 0 && !t.overdue[0].at.After(now) {
		first := t.overdue[0]
		t.overdue = t.overdue[1:]
		if first.lane.answered {
			overdue(first.lane.lane, first.names)
		} else {
			// A server that says nothing at all of the type says nothing of these.
			t.resync(first.lane, first.names, now, c)
		}
	}
}
