package e2e

import (
	"context"
	"fmt"
	"testing"

	gcptypes "github.com/envoyproxy/go-control-plane/pkg/cache/types"
	gcp "github.com/envoyproxy/go-control-plane/pkg/cache/v3"

	"github.com/xds-relay/xds-relay/cache"
)

// A control plane that speaks only SotW serves clients of both variants, through
// changes, removals and an outage: one that has no Delta, found out by the relay, and
// one that the relay is told to ask in SotW (UP-16, TRANSLATE-1).
func TestSotWControlPlane(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		mode    string
		noDelta bool
	}{{"auto", true}, {"sotw", false}} {
		t.Run(tt.mode, func(t *testing.T) {
			t.Parallel()
			snapshots := gcp.NewSnapshotCache(false, gcp.IDHash{}, nil)
			set := func(version string, clusters []gcptypes.Resource, endpoints []gcptypes.Resource) {
				t.Helper()
				s, err := gcp.NewSnapshot(version, map[string][]gcptypes.Resource{
					string(cache.Cluster): clusters, string(cache.Endpoint): endpoints,
					string(cache.Listener): {apiListener("l", 1, "r")}, string(cache.Route): {routeTo("r", 1, "a")},
				})
				if err == nil {
					err = snapshots.SetSnapshot(context.Background(), "edge-1", s)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			list := func(r ...gcptypes.Resource) []gcptypes.Resource { return r }
			set("1", list(edsCluster("a", 1), edsCluster("b", 1)), list(endpoints("a", 1, "127.0.0.1:1"), endpoints("b", 1, "127.0.0.1:1")))
			cp := newControlPlane(t, snapshots)
			cp.noDelta = tt.noDelta
			cp.Start()
			r := startRelay(t, cp.addr, append(quickBackoff, "upstream.node.id=edge-1", "upstream.mode="+tt.mode, "timers.dne_timeout=1s")...)

			e := startEnvoy(t, r.addr, "envoy", nil)
			g := openSotw(t, r.addr, "grpc")
			g.Watch(cache.Cluster, "a", "b")
			g.Watch(cache.Endpoint, "a")
			eventually(t, patience, func() error {
				return first(
					e.Has(cache.Cluster, "a", "b"), e.Has(cache.Endpoint, "a", "b"), e.Has(cache.Listener, "l"), e.Has(cache.Route, "r"), e.Warm(2),
					g.Has(cache.Cluster, "a", "b"), g.Has(cache.Endpoint, "a"),
				)
			})
			set("2", list(edsCluster("a", 2), edsCluster("c", 1)), list(endpoints("a", 2, "127.0.0.1:1"), endpoints("c", 1, "127.0.0.1:1")))
			eventually(t, patience, func() error {
				return first(
					e.Has(cache.Cluster, "a", "c"), e.AtLeast(cache.Cluster, "a", 2), e.AtLeast(cache.Endpoint, "a", 2), e.Warm(4),
					g.Has(cache.Cluster, "a"), g.AtLeast(cache.Endpoint, "a", 2),
				)
			})

			cp.Stop()
			set("3", list(edsCluster("a", 3)), list(endpoints("a", 3, "127.0.0.1:1")))
			cp.Start()
			eventually(t, patience, func() error {
				return first(
					e.Has(cache.Cluster, "a"), e.AtLeast(cache.Cluster, "a", 3), e.AtLeast(cache.Endpoint, "a", 3),
					g.AtLeast(cache.Cluster, "a", 3), g.AtLeast(cache.Endpoint, "a", 3),
				)
			})
			for _, u := range []cache.TypeURL{cache.Cluster, cache.Endpoint} {
				if err := e.NeverMissing(u, "a"); err != nil {
					t.Error(err)
				}
			}
			cp.see(func(streams []*upstreamStream) {
				for _, s := range streams {
					if !s.sotw || s.method != "" {
						t.Errorf("a stream upstream is not SotW ADS: sotw=%v type=%q", s.sotw, s.method)
					}
				}
			})
			if err := first(e.Sound(), g.Sound()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Two control planes with the same names: the second is turned to when the first
// cannot be reached and a client waits, and the first returned to when it is back.
// On the way nothing that exists is ever removed for a client; what the first has lost
// meanwhile is, once it has said all (UP-14, UP-15, RECON-12).
func TestFailover(t *testing.T) {
	t.Parallel()
	const names = 20
	world := func(revision int) *linear {
		w := newLinear(t)
		for i := range names {
			name := fmt.Sprintf("c-%02d", i)
			w.Set(cache.Cluster, name, edsCluster(name, revision))
			w.Set(cache.Endpoint, name, endpoints(name, revision, "127.0.0.1:1"))
		}
		w.Set(cache.Listener, "l", apiListener("l", revision, "r"))
		w.Set(cache.Route, "r", routeTo("r", revision, "c-00"))
		return w
	}
	preferred, second := world(1), world(2)
	preferred.Set(cache.Cluster, "gone", staticCluster("gone", 1))
	second.Set(cache.Cluster, "gone", staticCluster("gone", 2))
	second.Set(cache.Endpoint, "late", endpoints("late", 2, "127.0.0.1:1"))
	preferred.Set(cache.Endpoint, "late", endpoints("late", 1, "127.0.0.1:1"))

	a := startControlPlane(t, preferred.Mux())
	b := startControlPlane(t, second.Mux())
	r := startRelay(t, a.addr, append(quickBackoff, "upstream.failback_after=1s", fmt.Sprintf(`upstream.fallbacks=[{"address":%q}]`, b.addr))...)

	e := startEnvoy(t, r.addr, "envoy", nil)
	g := openSotw(t, r.addr, "grpc")
	g.Watch(cache.Cluster, "c-00", "c-01")
	at := func(revision int) func() error {
		return func() error {
			for i := range names {
				name := fmt.Sprintf("c-%02d", i)
				if err := first(e.AtLeast(cache.Cluster, name, revision), e.AtLeast(cache.Endpoint, name, revision)); err != nil {
					return err
				}
			}
			return first(
				e.AtLeast(cache.Listener, "l", revision), e.AtLeast(cache.Route, "r", revision),
				g.AtLeast(cache.Cluster, "c-00", revision), g.AtLeast(cache.Cluster, "c-01", revision),
			)
		}
	}
	eventually(t, patience, at(1))

	a.Stop()
	late := openDelta(t, r.addr, "late")
	late.Subscribe(cache.Endpoint, "late")
	took := eventually(t, patience, at(2))
	eventually(t, patience, func() error { return late.AtLeast(cache.Endpoint, "late", 2) })
	t.Logf("on the second control plane after %v", took)

	for i := range names {
		name := fmt.Sprintf("c-%02d", i)
		preferred.Set(cache.Cluster, name, edsCluster(name, 3))
		preferred.Set(cache.Endpoint, name, endpoints(name, 3, "127.0.0.1:1"))
	}
	preferred.Set(cache.Listener, "l", apiListener("l", 3, "r"))
	preferred.Set(cache.Route, "r", routeTo("r", 3, "c-00"))
	preferred.Delete(cache.Cluster, "gone")
	a.Start()
	took = eventually(t, patience, at(3))
	t.Logf("on the first again after %v", took)
	eventually(t, patience, func() error { return e.Missing(cache.Cluster, "gone") })

	for i := range names {
		name := fmt.Sprintf("c-%02d", i)
		if err := first(e.NeverMissing(cache.Cluster, name), e.NeverMissing(cache.Endpoint, name)); err != nil {
			t.Error(err)
		}
	}
	err := first(
		e.NeverMissing(cache.Listener, "l"), e.NeverMissing(cache.Route, "r"), late.NeverMissing(cache.Endpoint, "late"),
		e.Sound(), g.Sound(), late.Sound(), a.deltaADSOnly(), b.deltaADSOnly(),
	)
	if err != nil {
		t.Error(err)
	}
	if n := b.Open(); n != 0 {
		t.Errorf("%d streams are still open to the second control plane", n)
	}
}
