package upstream

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/grpc/credentials/insecure"

	"github.com/xds-relay/xds-relay/fanout"
)

// TestFailuresGoWithTheirEntry: what a group was told of entries that are not in its list any
// more is not remembered, whether it was told of it before or after the change.
func TestFailuresGoWithTheirEntry(t *testing.T) {
	conn := func(n int) *Conn {
		return NewConn(Endpoint{Name: fmt.Sprint(n), Target: "passthrough:///none", Credentials: insecure.NewCredentials()})
	}
	c := NewClient(Config{Entries: []Entry{{Name: "0"}}}, ClientOptions{Conns: []*Conn{conn(0)}, Hub: fanout.NewHub(fanout.Config{}), Log: slog.New(slog.DiscardHandler)})
	for n := 1; n < 100; n++ {
		was, now := c.conns[0], conn(n)
		if !c.firstFailure(was, ended{reason: "refused"}) {
			t.Error("the first failure of an entry is not told")
		}
		c.Reconfigure(Config{Entries: []Entry{{Name: fmt.Sprint(n)}}}, []*Conn{now})
		c.step(func(now time.Time) { c.reconfigure(now) })
		c.firstFailure(was, ended{reason: "late"})
	}
	if len(c.failed) > 1 {
		t.Errorf("failures of %d entries are remembered, and the list has one", len(c.failed))
	}
}
