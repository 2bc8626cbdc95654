package envoy

import (
	"fmt"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// A resource with a TTL lives while the control plane says so, and no longer, however
// many relays there are (TTL-3, TTL-5).
func TestTTL(t *testing.T) {
	const ttl = 3 * time.Second
	// SotW has TTLs only for who asks for them; the relay tells others when one ends.
	for _, w := range []way{{}, {relays: 1}, {relays: 2}, {relays: 1, sotw: true}} {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			m := w.makes()
			has := m.service("a", realenvoy.Backend(t, "a"))
			has.put(cache.Cluster, "leased", m.cluster("leased"))
			has.put(cache.Endpoint, "leased", endpoints("leased", realenvoy.Backend(t, "leased")))
			leased := has[cache.Cluster]["leased"]
			leased.ttl = ttl
			has[cache.Cluster]["leased"] = leased
			has.put(cache.Route, "web", routes("web", to("leased")))
			s := play(t, w, has)
			_, address := s.ready("envoy", "leased")
			for range 2 * ttl / time.Second {
				peer.Throughout(t, time.Second, func() error { return answers(address, "leased") })
				s.plane.Beat(cache.Cluster)
			}
			last := time.Now()
			peer.Eventually(t, ttl+slack, func() error {
				if answer, failure := realenvoy.Get(address); failure == "" {
					return fmt.Errorf("the cluster is still there, and answers %q", answer)
				}
				return nil
			})
			if lived := time.Since(last); lived < ttl-time.Second {
				t.Errorf("it lived for %v after the last heartbeat, and should for %v", lived, ttl)
			}
		})
	}
}
