package session

import (
	"fmt"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
)

// asksFor returns a request for so many names.
func asksFor(from, to int) *discovery.DeltaDiscoveryRequest {
	req := &discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Endpoint)}
	for i := from; i < to; i++ {
		req.ResourceNamesSubscribe = append(req.ResourceNamesSubscribe, fmt.Sprint(i))
	}
	return req
}

// TestRelaysMayHaveMoreNames: a relay asks for many clients.
func TestRelaysMayHaveMoreNames(t *testing.T) {
	for _, relay := range []bool{false, true} {
		s := newTold(t, Config{MaxRelayNames: 2000}) // others have 1,000
		s.peer.Relay = relay
		s.ask(asksFor(0, 1500))
		want := map[bool]int{true: 0, false: 500}[relay]
		if n := s.find(cache.Endpoint).base().excess.names.len(); n != want {
			t.Errorf("relay %v: %d names are refused, want %d", relay, n, want)
		}
	}
}

// TestExcessIsNotRemembered: a client that asks for too many names and reads nothing has few of them remembered before
// its stream ends, and none once it was told.
func TestExcessIsNotRemembered(t *testing.T) {
	s := newTold(t, Config{})
	s.ask(asksFor(0, 1500))
	if r := s.read(); r == nil || len(r.Errors) != 500 || s.find(cache.Endpoint).base().excess.names.len() != 0 {
		t.Errorf("told: %v", r)
	}
	var end *End
	requests := 0
	for ; end == nil && requests < 10; requests++ {
		_, end = s.DeltaRequest(asksFor(2000*requests, 2000*(requests+1)), s.now)
	}
	if end == nil || end.Reason != OverLimit || requests != 3 {
		t.Errorf("request %d of a client that does not read: %v", requests, end)
	}
}

// someNames is an Allowance.
type someNames struct{ left int }

func (n *someNames) Take(want int) int {
	got := min(want, n.left)
	n.left -= got
	return got
}
func (n *someNames) Give(back int) { n.left += back }
func (n *someNames) Room() int     { return n.left }

func (n *someNames) TakeAll(want int) bool {
	if want > n.Room() {
		return false
	}
	return n.Take(want) == want
}

// TestAllowance: what a stream has of all names follows what it asks for, and goes back with it.
func TestAllowance(t *testing.T) {
	s, all := newTold(t, Config{}), &someNames{10}
	s.Within(all)
	steps := []struct {
		what string
		req  *discovery.DeltaDiscoveryRequest
		left int
		over int
	}{
		{"a few", asksFor(0, 4), 6, 0},
		{"the same, and more than there are", asksFor(0, 12), 0, 2},
		{"a swap", &discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Endpoint), ResourceNamesSubscribe: []string{"x", "y"}, ResourceNamesUnsubscribe: []string{"0"}}, 0, 1},
		{"less", &discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Endpoint), ResourceNamesUnsubscribe: []string{"1", "2", "3"}}, 3, 0},
	}
	for _, step := range steps {
		s.ask(step.req)
		over := s.find(cache.Endpoint).base().excess.names.len()
		if s.read(); all.left != step.left || over != step.over {
			t.Errorf("%s: %d left, %d refused", step.what, all.left, over)
		}
	}
	if s.Close(s.now); all.left != 10 {
		t.Errorf("after the end %d are left", all.left)
	}
}
