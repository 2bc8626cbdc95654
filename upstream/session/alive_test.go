package session

import (
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// TestACheckAnswersWhatCameBefore: a check of the connection that began before a stream asked for
// it, since another stream had, says nothing of what was asked on this one meanwhile. It is begun
// once more, at once (protocol.md §0, "alive").
func TestACheckAnswersWhatCameBefore(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, test := range []struct {
		begun  time.Duration // after it was asked for
		alive  bool
		around time.Duration // until the next check is due
	}{
		{-time.Second, false, 0},
		{0, true, -1},
		{time.Second, true, -1},
	} {
		var l liveness
		question := l.question(now.Add(-time.Minute))
		l.check(now)
		end := now.Add(2 * time.Second)
		l.checked(Check{Begun: now.Add(test.begun), Result: There}, end, time.Hour)
		around := time.Duration(-1)
		if at := l.dueAt(time.Second, 0); !at.IsZero() {
			around = at.Sub(end)
		}
		if alive := l.answeredSince(question); alive != test.alive || around != test.around {
			t.Errorf("begun %v after it was asked for: alive %v, and the next is due after %v; want %v and %v", test.begun, alive, around, test.alive, test.around)
		}
	}
}

// TestLiveness: what a stream's questions, messages and checks say of whether somebody is there (protocol.md §0,
// "alive"). Each step is a second after the one before; the next check is due three seconds after the first question
// that is not answered.
func TestLiveness(t *testing.T) {
	start := time.Unix(1000, 0)
	const patience = 3 * time.Second
	for _, test := range []struct {
		name   string
		steps  string // q: a question, m: a message, c: a check is asked for, t and s: the peer is there, or silent
		proven uint64 // as of which question the stream is alive
		due    int    // at which second the next check is; -1: never
		silent int    // since which second nobody is there; -1: somebody is
	}{
		{"a question waits", "q", 0, 3, -1},
		{"another one does not prolong that", "qq", 0, 3, -1},
		{"a message answers all questions", "qqm", 2, -1, -1},
		{"a check is an answer", "qct", 1, -1, -1},
		{"not to what was asked during it", "qcqt", 1, 4, -1},
		{"and takes back no message that came during it", "qcqmt", 2, -1, -1},
		{"while it is under way there is no other", "qc", 0, -1, -1},
		{"silence began with the question", "qqcs", 0, 4, 0},
		{"or with the check, if there was none", "qmcs", 1, -1, 2},
	} {
		var l liveness
		silent := -1
		for i, step := range test.steps {
			now := start.Add(time.Duration(i) * time.Second)
			var since time.Time
			switch step {
			case 'q':
				l.question(now)
			case 'm':
				l.message(now)
			case 'c':
				l.check(now)
			case 't':
				since = l.checked(Check{Begun: l.checking, Result: There}, now, time.Second)
			case 's':
				since = l.checked(Check{Begun: l.checking, Result: Silent}, now, time.Second)
			}
			if !since.IsZero() {
				silent = int(since.Sub(start) / time.Second)
			}
		}
		due := -1
		if at := l.dueAt(patience, 0); !at.IsZero() {
			due = int(at.Sub(start) / time.Second)
		}
		if l.proven != test.proven || due != test.due || silent != test.silent {
			t.Errorf("%s: alive as of question %d, check due at %d, silent since %d; want %d, %d, %d", test.name, l.proven, due, silent, test.proven, test.due, test.silent)
		}
	}
}

// TestBlindEntriesAreNotAsked: an entry that cannot say whether anybody is there is not asked any more (protocol.md §0).
func TestBlindEntriesAreNotAsked(t *testing.T) {
	now := time.Unix(1000, 0)
	c, hub, open := twoEntries(t, now)
	c.Opened(open.ID, now)
	tickAll(c, hub, now)
	if !c.checks(&c.main) {
		t.Fatal("it is not asked to begin with")
	}
	c.Checked(open.ID, Check{Begun: now, Result: Blind}, now)
	if c.checks(&c.main) {
		t.Error("it is asked again")
	}
}

// TestAliveIsKnownEachMinute: on a stream on which nothing comes and nothing is asked, the control plane
// is asked each minute whether it is there, so that the age of what is on disk is known (RECON-19).
func TestAliveIsKnownEachMinute(t *testing.T) {
	for _, every := range []time.Duration{0, time.Minute} {
		for _, entries := range [][]string{nil, {"second"}} {
			l := listen(t, entries...)
			l.core.config.AliveEvery, l.core.config.FailoverAfter = every, time.Hour
			l.wants(cache.Cluster, "a")
			if !l.core.Alive(l.now).IsZero() {
				t.Error("it is known to be alive before anything came")
			}
			for range 600 {
				l.pass(time.Second)
			}
			alive := l.core.Alive(l.now)
			if age := l.now.Sub(alive); (age <= time.Minute) != (every > 0) {
				t.Errorf("checked every %v, %d more entries: after ten quiet minutes it was last known to be alive %v ago", every, len(entries), age)
			}
			l.verdict = Silent
			for range 600 {
				l.pass(time.Second)
			}
			if now := l.core.Alive(l.now); now.Sub(alive) > time.Minute {
				t.Errorf("checked every %v: it is known to be alive as of %v after it hung", every, now.Sub(alive))
			}
		}
	}
}

// TestAliveWithoutChecks: a stream that has been open for unavailableafter counts as alive.
func TestAliveWithoutChecks(t *testing.T) {
	l := listen(t)
	l.core.config.HealthCheck = false
	l.wants(cache.Cluster, "a")
	l.pass(4 * time.Second)
	if !l.core.Alive(l.now).IsZero() {
		t.Error("it counts as alive too early")
	}
	if l.pass(4 * time.Second); l.core.Alive(l.now) != l.now {
		t.Errorf("it counts as alive as of %v", l.core.Alive(l.now))
	}
}
