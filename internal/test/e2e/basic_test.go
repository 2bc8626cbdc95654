package e2e

import (
	"context"
	"testing"

	gcptypes "github.com/envoyproxy/go-control-plane/pkg/cache/types"
	gcp "github.com/envoyproxy/go-control-plane/pkg/cache/v3"

	"github.com/xds-relay/xds-relay/cache"
)

// A SnapshotCache upstream: every variant sees a consistent snapshot, the next
// one, and what is missing from it.
func TestSnapshotCache(t *testing.T) {
	t.Parallel()
	snapshots := gcp.NewSnapshotCache(true, gcp.IDHash{}, nil)
	set := func(version string, resources map[cache.TypeURL][]gcptypes.Resource) {
		t.Helper()
		byType := make(map[string][]gcptypes.Resource)
		for u, r := range resources {
			byType[string(u)] = r
		}
		s, err := gcp.NewSnapshot(version, byType)
		if err != nil {
			t.Fatal(err)
		}
		if err := snapshots.SetSnapshot(context.Background(), "edge-1", s); err != nil {
			t.Fatal(err)
		}
	}
	set("1", map[cache.TypeURL][]gcptypes.Resource{
		cache.Cluster:  {edsCluster("a", 1), edsCluster("b", 1)},
		cache.Endpoint: {endpoints("a", 1, "127.0.0.1:1"), endpoints("b", 1, "127.0.0.1:1")},
		cache.Listener: {apiListener("l", 1, "r")},
		cache.Route:    {routeTo("r", 1, "a")},
	})
	cp := startControlPlane(t, snapshots)
	r := startRelay(t, cp.addr, "upstream.node.id=edge-1")

	e := startEnvoy(t, r.addr, "envoy", nil)
	g := openSotw(t, r.addr, "grpc")
	g.Watch(cache.Listener, "l")
	g.Watch(cache.Route, "r")
	g.Watch(cache.Cluster, "a")
	g.Watch(cache.Endpoint, "a")
	eventually(t, patience, func() error {
		return first(
			e.Has(cache.Cluster, "a", "b"), e.Has(cache.Endpoint, "a", "b"), e.Has(cache.Listener, "l"), e.Has(cache.Route, "r"),
			g.Has(cache.Listener, "l"), g.Has(cache.Route, "r"), g.Has(cache.Cluster, "a"), g.Has(cache.Endpoint, "a"),
			e.Warm(2),
		)
	})

	set("2", map[cache.TypeURL][]gcptypes.Resource{
		cache.Cluster:  {edsCluster("a", 2), edsCluster("c", 1)},
		cache.Endpoint: {endpoints("a", 2, "127.0.0.1:1"), endpoints("c", 1, "127.0.0.1:1")},
		cache.Listener: {apiListener("l", 2, "r")},
		cache.Route:    {routeTo("r", 2, "c")},
	})
	eventually(t, patience, func() error {
		return first(
			e.Has(cache.Cluster, "a", "c"), e.Has(cache.Endpoint, "a", "c"), e.Warm(4),
			e.AtLeast(cache.Cluster, "a", 2), e.AtLeast(cache.Endpoint, "a", 2), e.AtLeast(cache.Listener, "l", 2), e.AtLeast(cache.Route, "r", 2),
			g.AtLeast(cache.Cluster, "a", 2), g.AtLeast(cache.Endpoint, "a", 2), g.AtLeast(cache.Listener, "l", 2), g.AtLeast(cache.Route, "r", 2),
		)
	})
	set("3", map[cache.TypeURL][]gcptypes.Resource{
		cache.Cluster:  {edsCluster("c", 1)},
		cache.Endpoint: {endpoints("c", 1, "127.0.0.1:1")},
		cache.Listener: {apiListener("l", 2, "r")},
		cache.Route:    {routeTo("r", 2, "c")},
	})
	eventually(t, patience, func() error {
		return first(e.Has(cache.Cluster, "c"), e.Has(cache.Endpoint, "c"), g.Has(cache.Cluster), g.Missing(cache.Cluster, "a"))
	})
	if err := first(e.Sound(), g.Sound(), cp.deltaADSOnly()); err != nil {
		t.Fatal(err)
	}
}

// LinearCaches behind a MuxCache upstream, where every change is one of its own.
func TestLinearCache(t *testing.T) {
	t.Parallel()
	w := newLinear(t)
	w.service("a", "127.0.0.1:1")
	cp := startControlPlane(t, w.Mux())
	r := startRelay(t, cp.addr)

	e := startEnvoy(t, r.addr, "envoy", nil)
	eventually(t, patience, func() error {
		return first(e.Has(cache.Cluster, "a-cluster"), e.Has(cache.Endpoint, "a-cluster"), e.Has(cache.Listener, "a"), e.Has(cache.Route, "a-route"))
	})
	w.service("b", "127.0.0.1:2")
	eventually(t, patience, func() error {
		return first(e.Has(cache.Endpoint, "a-cluster", "b-cluster"), e.Has(cache.Route, "a-route", "b-route"))
	})
	for i := 2; i <= 5; i++ {
		w.Set(cache.Endpoint, "a-cluster", endpoints("a-cluster", i, "127.0.0.1:3"))
		eventually(t, patience, func() error { return e.AtLeast(cache.Endpoint, "a-cluster", i) })
	}
	w.Delete(cache.Listener, "b")
	w.Delete(cache.Cluster, "b-cluster")
	eventually(t, patience, func() error {
		return first(e.Has(cache.Listener, "a"), e.Has(cache.Route, "a-route"), e.Has(cache.Cluster, "a-cluster"), e.Has(cache.Endpoint, "a-cluster"))
	})
	if err := first(e.Sound(), cp.deltaADSOnly(), is("streams upstream", cp.Most(), 1)); err != nil {
		t.Fatal(err)
	}
}
