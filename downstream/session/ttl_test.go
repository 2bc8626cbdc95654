package session

import (
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/xds-relay/xds-relay/cache"
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
