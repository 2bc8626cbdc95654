package envoy

import (
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/e2e/realenvoy"
)

// rejected is a cluster that no Envoy accepts: its ring is to be larger than it may be.
func (m maker) rejected(name string) *cluster.Cluster {
	c := m.cluster(name)
	c.LbPolicy = cluster.Cluster_RING_HASH
	c.LbConfig = &cluster.Cluster_RingHashLbConfig_{RingHashLbConfig: &cluster.Cluster_RingHashLbConfig{
		MinimumRingSize: wrapperspb.UInt64(2048), MaximumRingSize: wrapperspb.UInt64(1024),
	}}
	return c
}

// A cluster that Envoys reject keeps nothing else from them, and is taken once it is
// mended.
func TestRejectedCluster(t *testing.T) {
	for _, w := range append(variants(way{relays: 1, waits: true}), variants(way{relays: 2})...) {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			m := w.makes()
			backends := map[string]string{"a": realenvoy.Backend(t, "a"), "b": realenvoy.Backend(t, "b"), "bad": realenvoy.Backend(t, "bad")}
			s := play(t, w, m.service("a", backends["a"]))
			e, address := s.ready("envoy", "a")
			load := realenvoy.Drive(t, address, rate())
			s.plane.Change(func(has world) {
				has.put(cache.Cluster, "bad", m.rejected("bad"))
				has.put(cache.Endpoint, "bad", endpoints("bad", backends["bad"]))
				has.put(cache.Cluster, "b", m.cluster("b"))
				has.put(cache.Endpoint, "b", endpoints("b", backends["b"]))
				has.put(cache.Route, "web", routes("web", to("b")))
			})
			eventually(t, patience, func() error { return is("answer", load.Last(), "b") })
			if n, err := e.Sum("cds.update_rejected"); err != nil || n == 0 {
				t.Errorf("the Envoy has rejected nothing: %v", err)
			}
			s.plane.Change(func(has world) {
				has.put(cache.Cluster, "bad", m.cluster("bad"))
				has.put(cache.Route, "web", routes("web", to("bad")))
			})
			eventually(t, patience, func() error { return is("answer", load.Last(), "bad") })
			unharmed(t, e, load)
		})
	}
}
