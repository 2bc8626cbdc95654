package upstream

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/upstream/session"
)

// TestFailuresGoWithTheirEntry: what a group was told about entries that are not in its list any
// more is not remembered, whether that was before or after the change.
func TestFailuresGoWithTheirEntry(t *testing.T) {
	conn := func(n int) *Conn {
		return NewConn(Endpoint{Name: fmt.Sprint(n), Target: "passthrough:///none", Credentials: insecure.NewCredentials()})
	}
	c := NewClient(session.Config{Entries: []session.Entry{{Name: "0"}}}, ClientOptions{Conns: []*Conn{conn(0)}, Hub: fanout.NewHub(fanout.Config{}), Log: slog.New(slog.DiscardHandler)})
	for n := 1; n < 100; n++ {
		was, now := c.conns[0], conn(n)
		if !c.firstFailure(was, ended{reason: "refused"}) {
			t.Error("the first failure of an entry is not told")
		}
		c.Reconfigure(session.Config{Entries: []session.Entry{{Name: fmt.Sprint(n)}}}, []*Conn{now})
		c.step(func(now time.Time) { c.reconfigure(now) })
		c.firstFailure(was, ended{reason: "late"})
	}
	if len(c.failed) > 1 {
		t.Errorf("failures of %d entries are remembered, and the list has one", len(c.failed))
	}
}

// received is a Tracer that keeps what came.
type received struct{ all []Received }

func (r *received) Received(x Received) cache.Trace  { r.all = append(r.all, x); return nil }
func (r *received) Applied(cache.Trace, Application) {}
func (r *received) Taken(_ cache.Trace, _ string)    {}

// TestTracedAfterAReload: a response that comes on a stream whose entry has another place in
// the list by now, or none, is traced as that entry's.
func TestTracedAfterAReload(t *testing.T) {
	tracer := &received{}
	conns := make(map[string]*Conn)
	for _, name := range []string{"first", "second", "third", "fourth"} {
		conns[name] = NewConn(Endpoint{Name: name, Target: "passthrough:///none", Credentials: insecure.NewCredentials()})
	}
	c := NewClient(session.Config{Entries: []session.Entry{{Name: "first"}, {Name: "second"}}}, ClientOptions{Conns: []*Conn{conns["first"], conns["second"]}, Hub: fanout.NewHub(fanout.Config{}), Log: slog.New(slog.DiscardHandler), Tracer: tracer})
	s := &stream{open: session.Open{ID: 1, Role: session.Main, Entry: 1}, conn: conns["second"]}
	for _, list := range [][]session.Entry{{{Name: "third"}, {Name: "fourth"}, {Name: "second"}}, {{Name: "third"}}} {
		var now []*Conn
		for _, e := range list {
			now = append(now, conns[e.Name])
		}
		c.Reconfigure(session.Config{Entries: list}, now)
		c.step(func(now time.Time) { c.reconfigure(now) })
		if _, err := c.takeIn(1, s, &discovery.DeltaDiscoveryResponse{TypeUrl: string(cache.Cluster), Nonce: "n"}, c.log); err != nil {
			t.Error(err)
		}
	}
	for _, r := range tracer.all {
		if r.Stream.Entry != "second" {
			t.Errorf("it is said to be of %s", r.Stream.Entry)
		}
	}
	if len(tracer.all) != 2 {
		t.Errorf("%d of 2 responses were traced", len(tracer.all))
	}
}
