package session

import (
	"fmt"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
)

// TestSpellingsAreBounded: a client that asks for one name after the other in a spelling of its own
// has few of them remembered, and those that it asks for still (NAME-9, VALID-8).
func TestSpellingsAreBounded(t *testing.T) {
	s := newTold(t, Config{})
	name := func(i int) string { return fmt.Sprintf("xdstp://cp/t/%d?b=2&a=1", i) }
	for i := range 10_000 {
		req := &discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Endpoint), ResourceNamesSubscribe: []string{name(i)}}
		if i >= 10 {
			req.ResourceNamesUnsubscribe = []string{name(i - 10)}
		}
		s.ask(req)
		s.read()
	}
	spelled := &s.find(cache.Endpoint).base().spelled
	if n := len(spelled.own); n < 10 || n > 100 {
		t.Errorf("%d spellings are kept", n)
	}
	for i := 9_990; i < 10_000; i++ {
		if own := spelled.of(cache.Canonical(name(i))); own != name(i) {
			t.Errorf("%s is spelled %s", name(i), own)
		}
	}
}

// TestOrdinaryNamesAreNotRead: requests without names of the scheme are taken in as they are.
func TestOrdinaryNamesAreNotRead(t *testing.T) {
	s := newTold(t, Config{}, cache.Endpoint)
	d := s.find(cache.Endpoint).(*deltaState)
	req := &discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"a", "b/*"}, ResourceNamesUnsubscribe: []string{"c"}}
	if n := testing.AllocsPerRun(100, func() {
		if d.spells(req) != req {
			t.Fatal("it is made again")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
