package envoy

import (
	"errors"
	"testing"
	"time"

	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// Endpoints that are leased (endpoint_stale_after) are renewed each second by the same
// bytes, and no request fails, however many relays there are; when the control plane
// renews them no more, they are over (TTL-13).
func TestLease(t *testing.T) {
	const lease = 6 * time.Second
	ways := atFirst(2, oneLanguage(way{relays: 1}), variants(way{}), translated(way{relays: 1}), oneLanguage(way{relays: 2}))
	for _, w := range ways {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			m := w.makes()
			has := m.service("a", realenvoy.Backend(t, "a"))
			leased := endpoints("a", realenvoy.Backend(t, "a"))
			leased.Policy = &endpoint.ClusterLoadAssignment_Policy{EndpointStaleAfter: durationpb.New(lease)}
			has.put(cache.Endpoint, "a", leased)
			r := has[cache.Endpoint]["a"]
			r.leased = true
			has[cache.Endpoint]["a"] = r
			s := play(t, w, has)
			e, address := s.ready("envoy", "a")
			load := realenvoy.Drive(t, address, 50)
			for range often(60, 8) {
				peer.Wait(time.Second)
				s.plane.Beat(cache.Endpoint)
			}
			unharmed(t, e, load)
			last := time.Now()
			peer.Eventually(t, lease+slack, func() error {
				if answers(address, "a") == nil {
					return errors.New("the endpoints are still there")
				}
				return nil
			})
			if lived := time.Since(last); lived < lease-time.Second {
				t.Errorf("they lived for %v after they were renewed, and should for %v", lived, lease)
			}
		})
	}
}
