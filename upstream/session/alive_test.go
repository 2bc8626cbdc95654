package session

import (
	"testing"
	"time"
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
		l.checked(Check{Begun: now.Add(test.begun), Verdict: There}, end, time.Hour)
		around := time.Duration(-1)
		if at := l.dueAt(time.Second, 0); !at.IsZero() {
			around = at.Sub(end)
		}
		if alive := l.answeredSince(question); alive != test.alive || around != test.around {
			t.Errorf("begun %v after it was asked for: alive %v, and the next is due after %v; want %v and %v", test.begun, alive, around, test.alive, test.around)
		}
	}
}
