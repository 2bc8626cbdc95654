package upstream

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/credentials/insecure"

	"github.com/xds-relay/xds-relay/upstream/session"
)

// TestNoRoomIsNoLoss: that a group finds no room for its stream is told once, and the loss that comes
// later as a loss.
func TestNoRoomIsNoLoss(t *testing.T) {
	var lines bytes.Buffer
	c := NewConn(Endpoint{Name: "up", Target: "passthrough:///none", Credentials: insecure.NewCredentials(), Log: slog.New(slog.NewTextHandler(&lines, nil))})
	own := func() bool { return false }
	c.standing.heard(time.Now())
	for range 2 {
		c.tellEnded(ended{End: session.End{Kind: session.EndNoRoom}, reason: "no_room"}, c.endpoint.Log, "default", own)
	}
	for range 2 {
		c.tellEnded(ended{began: true, reason: "unavailable"}, c.endpoint.Log, "default", own)
	}
	for _, sentence := range []string{"no room for another stream", "lost the control plane", "level=WARN"} {
		want := 1
		if sentence == "level=WARN" {
			want = 2
		}
		if got := strings.Count(lines.String(), sentence); got != want {
			t.Errorf("%q is told %d times, want %d:\n%s", sentence, got, want, lines.String())
		}
	}
}

// TestEverySwitchIsToldOnce: each time that the groups turn to another control plane is one line
// of the log, and so is each time that they turn back.
func TestEverySwitchIsToldOnce(t *testing.T) {
	var lines bytes.Buffer
	conn := func(name string) *Conn {
		return NewConn(Endpoint{Name: name, Target: "passthrough:///none", Credentials: insecure.NewCredentials(), Log: slog.New(slog.NewTextHandler(&lines, nil))})
	}
	first, second, third := conn("first"), conn("second"), conn("third")
	told := func(want int, to, from *Conn, why session.Cause) {
		t.Helper()
		lines.Reset()
		for range 3 { // groups
			to.tellSwitch(from, why)
		}
		if got := strings.Count(lines.String(), "address="+to.endpoint.Name+" instead_of="+from.endpoint.Name); got != want {
			t.Errorf("a switch from %s to %s is told in %d lines, want %d", from.endpoint.Name, to.endpoint.Name, got, want)
		}
	}
	for range 3 {
		told(1, second, first, session.Waits)
		second.standing.heard(time.Now())
		first.standing.heard(time.Now())
		told(1, first, second, session.Preferred)
	}
	// The groups end where they are, and later ones begin with the first again.
	for range 2 {
		told(1, second, first, session.Waits)
		first.standing.lost(time.Now())
		first.standing.heard(time.Now())
	}
	// As long as neither answers, the groups come and go one by one.
	second.standing.lost(time.Now())
	for want := 1; want >= 0; want-- {
		told(want, third, second, session.Waits)
		told(want, second, third, session.Waits)
	}
}
