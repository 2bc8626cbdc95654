package session

import (
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// TestSizesBoundWhatIsSent: what a resource is reckoned with is what it takes at most,
// whatever is left of its TTL (TTL-5, DOWN-DELTA-18).
func TestSizesBoundWhatIsSent(t *testing.T) {
	now := time.Unix(1, 0)
	whole, beat, bare := resourceOf("whole", 300), resourceOf("beat", 300), resourceOf("bare", 300)
	for _, left := range []time.Duration{90 * time.Second, 1500 * time.Millisecond, time.Nanosecond, -time.Second, 1<<63 - 1} {
		for _, delta := range []bool{true, false} {
			r := &Response{
				Delta: delta, Type: cache.Endpoint, Resources: []*cache.Resource{whole, bare}, Heartbeats: []*cache.Resource{beat},
				Ends: map[*cache.Resource]time.Time{whole: now.Add(left), beat: now.Add(left)}, At: now,
			}
			bound := len(r.Head()) + sizeOf(fieldResources, len(beat.Heading())+maxTTL) + 200
			for _, res := range r.Resources {
				bound += r.sizeOf(res)
			}
			if n := len(wire(r)); n > bound {
				t.Errorf("a response of %d bytes is reckoned with %d at most", n, bound)
			}
		}
	}
}

// TestFeatures: sources disagree on the spelling; all are accepted (TTL-6).
func TestFeatures(t *testing.T) {
	for _, tt := range []struct {
		features    []string
		delta, sotw bool
	}{
		{nil, false, false},
		{[]string{"xds.config.supports-resource-ttl"}, true, false},
		{[]string{"envoy.config.supports-resource-ttl"}, true, false},
		{[]string{"xds.config.resource-in-sotw"}, false, false},
		{[]string{"xds.config.supports-resource-ttl", "xds.config.resource-in-sotw"}, true, true},
		{[]string{"xds.config.supports-resource-in-sotw", "xds.config.supports-resource-ttl"}, true, true},
		{[]string{"envoy.config.supports-resource-ttl", "envoy.config.resource-in-sotw"}, true, true},
		{[]string{"envoy.config.supports-resource-ttl", "envoy.config.supports-resource-in-sotw"}, true, true},
		{[]string{"supports-resource-ttl"}, false, false},
	} {
		node := &core.Node{ClientFeatures: tt.features}
		if delta, sotw := takesTTL(node, true), takesTTL(node, false); delta != tt.delta || sotw != tt.sotw {
			t.Errorf("%q: Delta %v, SotW %v; want %v, %v", tt.features, delta, sotw, tt.delta, tt.sotw)
		}
	}
}

// TestComesBackAndShares: a client that came with what has a TTL, and was sent only that, shares the
// next change with all others, and keeps nothing of what it came with.
func TestComesBackAndShares(t *testing.T) {
	hub, now, lane := fanout.NewHub(fanout.Config{}), time.Unix(1000, 0), fanout.Lane{Type: cache.Endpoint, Wildcard: true}
	apply := func(body string, ttl time.Duration) *cache.Resource {
		r := cache.NewResource(lane.Type, &discovery.Resource{Name: body[:1], Resource: &anypb.Any{Value: []byte(body)}}, cache.Fingerprint{})
		hub.Apply(lane, &cache.Update{At: now, Set: []cache.Received{{Resource: r, TTL: ttl}}, Synced: true})
		return r
	}
	hub.Subscribe(lane.Type, fanout.NewSubscriber(func() {})).Delta([]string{fanout.Wildcard}, nil, now)
	s := New(&Config{MaxName: 100, MaxNames: 100, AckTimeout: time.Minute}, Stream{Delta: true}, Peer{}, oneGroup{hub}, NewClusterDeliveries(), func() {})
	ask := func(req *discovery.DeltaDiscoveryRequest) *Response {
		req.TypeUrl = string(lane.Type)
		if _, end := s.DeltaRequest(req, now); end != nil {
			t.Fatal(end)
		}
		r, end := s.Next(now)
		if end != nil {
			t.Fatal(end)
		}
		return r
	}
	node := &core.Node{ClientFeatures: []string{"xds.config.supports-resource-ttl"}}
	first := ask(&discovery.DeltaDiscoveryRequest{Node: node, ResourceNamesSubscribe: []string{"*"}, InitialResourceVersions: map[string]string{"a": apply("a", time.Hour).Version}})
	if first == nil || len(first.Heartbeats) != 1 {
		t.Fatalf("the client was sent %v", first)
	}
	apply("b", 0)
	next := ask(&discovery.DeltaDiscoveryRequest{ResponseNonce: first.Nonce})
	if next == nil || next.News == nil {
		t.Errorf("the client was sent %v of its own", next)
	}
	if x := s.states[0].base(); x.exact != nil || len(x.came) > 0 {
		t.Errorf("%v and %v are kept", x.exact, x.came)
	}
}
