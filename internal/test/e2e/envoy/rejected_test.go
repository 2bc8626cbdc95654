package envoy

import (
	"fmt"
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// rejects are clusters that no Envoy accepts. To the one without a source of its endpoints
// it says so at once. The ring that is to be larger than it may be it only finds out when
// the cluster exists already; CDS stays paused then, and it answers nothing until the next
// clusters come (observed with 1.40, relay or not).
var rejects = map[string]func(*cluster.Cluster){
	"at once": func(c *cluster.Cluster) { c.EdsClusterConfig = nil },
	"in silence": func(c *cluster.Cluster) {
		c.LbPolicy = cluster.Cluster_RING_HASH
		c.LbConfig = &cluster.Cluster_RingHashLbConfig_{RingHashLbConfig: &cluster.Cluster_RingHashLbConfig{
			MinimumRingSize: wrapperspb.UInt64(2048), MaximumRingSize: wrapperspb.UInt64(1024),
		}}
	},
}

// A cluster that Envoys reject keeps nothing else from them, and is taken once it is
// mended.
func TestRejectedCluster(t *testing.T) {
	for how, spoil := range rejects {
		for _, w := range atFirst(2, variants(way{relays: 1}), []way{{relays: 2}}) {
			t.Run(fmt.Sprintf("%s, %v", how, w), func(t *testing.T) {
				t.Parallel()
				m := w.makes()
				backends := map[string]string{"a": realenvoy.Backend(t, "a"), "b": realenvoy.Backend(t, "b"), "bad": realenvoy.Backend(t, "bad")}
				s := play(t, w, m.service("a", backends["a"]))
				e, address := s.ready("envoy", "a")
				load := realenvoy.Drive(t, address, rate())
				s.plane.Change(func(has world) {
					bad := m.cluster("bad")
					spoil(bad)
					has.put(cache.Cluster, "bad", bad)
					has.put(cache.Endpoint, "bad", endpoints("bad", backends["bad"]))
					has.put(cache.Cluster, "b", m.cluster("b"))
					has.put(cache.Endpoint, "b", endpoints("b", backends["b"]))
					has.put(cache.Route, "web", routes("web", to("b")))
				})
				peer.Eventually(t, patience, func() error { return peer.Is("answer", load.Last(), "b") })
				s.plane.Change(func(has world) {
					has.put(cache.Cluster, "bad", m.cluster("bad"))
					has.put(cache.Route, "web", routes("web", to("bad")))
				})
				peer.Eventually(t, patience, func() error { return peer.Is("answer", load.Last(), "bad") })
				if n, err := e.Sum("update_rejected"); err != nil || n == 0 {
					t.Errorf("the Envoy has rejected nothing: %v", err)
				}
				if c := load.Stop(); how == "in silence" && c.Failed() < rate() {
					// Routes have waited for its answer in vain, and wait for no other: it is
					// turned to the mended cluster while that warms, but not for seconds.
					t.Log(c)
					return
				}
				unharmed(t, e, load)
			})
		}
	}
}
