package session

import (
	"testing"
	"time"
)

// TestAnOutageBeganWithTheQuestion: if a connection breaks during a health check, the outage began
// with the question that made the relay check. If the server ends the stream, or no check is under
// way, the outage begins with the end (ERR-1).
func TestAnOutageBeganWithTheQuestion(t *testing.T) {
	asked, now := time.Unix(1000, 0), time.Unix(1008, 0)
	for _, test := range []struct {
		name     string
		checking bool
		end      End
		since    time.Time
	}{
		{"it breaks during a check", true, End{}, asked},
		{"it breaks", false, End{}, now},
		{"the server ends it", true, End{Kind: EndRefused}, now},
	} {
		s := slot{stream: &streamState{}}
		s.alive.question(asked)
		if test.checking {
			s.alive.check(asked.Add(5 * time.Second))
		}
		if s.ended(test.end, now); !s.outage.since.Equal(test.since) {
			t.Errorf("%s: it has been failing since %v, want %v", test.name, s.outage.since, test.since)
		}
	}
}

// TestTheLastFailureIsTheOneThatIsShown: people are told that the control plane has stopped answering
// when its connection is closed for that, and not when a later attempt fails for another reason.
func TestTheLastFailureIsTheOneThatIsShown(t *testing.T) {
	now := time.Unix(1000, 0)
	c, hub, open := twoEntries(t, now)
	c.heard = true
	c.Opened(open.ID, now)
	c.main.alive.stopped = true
	for _, want := range []string{stopped, "nobody listens"} {
		c.Ended(open.ID, End{Message: "nobody listens"}, now)
		if got := c.State().Entries[0].Error; got != want {
			t.Errorf("%q is shown, want %q", got, want)
		}
		now = now.Add(2 * time.Second)
		again := tickAll(c, hub, now)
		if len(again) != 1 {
			t.Fatalf("%v are opened", again)
		}
		open = again[0]
	}
}

// TestAMoveIsNoFailure: a stream that moves to another connection to make room for others has not
// failed, and nobody is told that it has.
func TestAMoveIsNoFailure(t *testing.T) {
	now := time.Unix(1000, 0)
	c, _, open := twoEntries(t, now)
	c.Opened(open.ID, now)
	c.Ended(open.ID, End{Message: "moved", Kind: EndNoRoom}, now)
	if got := c.State().Entries[0].Error; got != "" || !c.main.outage.since.IsZero() {
		t.Errorf("%q is shown, and the outage began at %v", got, c.main.outage.since)
	}
}
