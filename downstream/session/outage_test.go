package session

import (
	"math/rand/v2"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// TestStreamsOfAnOutageEndSpread: the clients that wait when an outage is noticed are
// sent away over two seconds, and those that come in the midst of it not before they
// have had time to be served (ERR-7).
func TestStreamsOfAnOutageEndSpread(t *testing.T) {
	const clients, after = 1000, 5 * time.Second
	hub := fanout.NewHub(fanout.Config{Linger: time.Minute})
	config := &Config{
		AckTimeout: 10 * time.Second, MaxName: 1000, MaxNames: 1000,
		UnavailableAfter: after, Random: rand.New(rand.NewPCG(1, 2)).Float64,
	}
	now := epoch
	come := func() *Session {
		s := New(config, Stream{}, Peer{}, oneGroup{hub}, NewClusterDeliveries(), func() {})
		node := &core.Node{Id: "c", UserAgentName: "gRPC Go"}
		if _, end := s.SotWRequest(&discovery.DiscoveryRequest{Node: node, TypeUrl: string(cache.Endpoint), ResourceNames: []string{"a"}}, now); end != nil {
			t.Fatal(end)
		}
		return s
	}
	// endOf is when a stream ends, which must be its deadline.
	endOf := func(s *Session) time.Time {
		if r, end := s.Next(now); r != nil || end != nil {
			t.Fatalf("at once: %v, %v", r, end)
		}
		at := s.Deadline(now)
		if _, end := s.Next(at.Add(-time.Nanosecond)); end != nil {
			t.Fatal("it ends before its deadline")
		}
		if _, end := s.Next(at); end == nil || end.Reason != Unreachable || end.Message != "away" {
			t.Fatalf("at its deadline: %v", end)
		}
		return at
	}
	spread := func(from time.Time, sessions []*Session) {
		t.Helper()
		var halves [4]int
		for _, s := range sessions {
			at := endOf(s)
			if at.Before(from) || at.Sub(from) >= endWithin {
				t.Fatalf("a stream ends %v after it may, want within %v", at.Sub(from), endWithin)
			}
			halves[at.Sub(from)*time.Duration(len(halves))/endWithin]++
		}
		for i, n := range halves {
			if n < clients/len(halves)/2 {
				t.Errorf("%d of %d streams end in half second %d", n, clients, i)
			}
		}
	}
	var waiting, late []*Session
	for range clients {
		waiting = append(waiting, come())
	}
	now = now.Add(time.Minute)
	hub.On(fanout.Lane{Type: cache.Endpoint}).SetUnavailable(&statuspb.Status{Code: cache.Unavailable, Message: "away"})
	for range clients {
		late = append(late, come())
	}
	spread(now, waiting)
	spread(now.Add(after), late)
}
