package session

import (
	"fmt"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
)

// TestDeniedNamesAreAnsweredInTheirSpelling: errors of names that are denied name them as the client does, also if
// they are many (NAME-9).
func TestDeniedNamesAreAnsweredInTheirSpelling(t *testing.T) {
	s, _ := newJudged(t, 0, "a")
	var names []string
	asked := make(map[string]bool)
	for i := range 100 {
		name := fmt.Sprintf("xdstp://auth/T/%d?b=2&a=1", i)
		names, asked[name] = append(names, name), true
	}
	s.ask(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Endpoint), ResourceNamesSubscribe: names})
	for r := s.read(); r != nil; r = s.read() {
		for _, e := range r.Errors {
			if !asked[e.GetResourceName().GetName()] {
				t.Fatalf("an error of %q, which it did not ask for", e.GetResourceName().GetName())
			}
		}
	}
}
