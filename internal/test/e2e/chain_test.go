package e2e

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// Relays behind a relay: the versions are the same on every hop, and so is what
// clients see (RECON-2). That two of them are called the same, as relays on one host are by
// default, makes no loop (NODE-11).
func TestChainHasEqualVersions(t *testing.T) {
	t.Parallel()
	w := newLinear(t)
	for _, name := range []string{"a", "b"} {
		w.service(name, "127.0.0.1:1")
	}
	cp := startControlPlane(t, w.Mux())
	regional := startRelay(t, cp.addr, "instance=host")
	zonal := startRelay(t, regional.addr, "instance=host")
	sidecar := startRelay(t, zonal.addr, "instance=sidecar")
	clients := make([]*envoy, 0, 3)
	watchers := make([]*sotwClient, 0, 3)
	for i, r := range []*relayed{regional, zonal, sidecar} {
		clients = append(clients, startEnvoy(t, r.addr, fmt.Sprintf("envoy-%d", i), nil))
		s := openSotw(t, r.addr, fmt.Sprintf("grpc-%d", i))
		s.Watch(cache.Cluster, "a-cluster", "b-cluster")
		s.Watch(cache.Endpoint, "a-cluster")
		watchers = append(watchers, s)
	}
	complete := func(clusters, listeners, routes []string) func() error {
		return func() error {
			for i, c := range clients {
				if err := first(
					c.Has(cache.Cluster, clusters...), c.Has(cache.Endpoint, clusters...), c.Has(cache.Listener, listeners...), c.Has(cache.Route, routes...),
					watchers[i].Has(cache.Cluster, clusters...), watchers[i].Has(cache.Endpoint, "a-cluster"),
				); err != nil {
					return err
				}
			}
			return nil
		}
	}
	equal := func() error {
		for i := 1; i < len(clients); i++ {
			if err := first(clients[0].sameVersions(clients[i].deltaClient),
				is("CDS version_info", watchers[i].Version(cache.Cluster), watchers[0].Version(cache.Cluster))); err != nil {
				return err
			}
		}
		return nil
	}
	eventually(t, patience, complete([]string{"a-cluster", "b-cluster"}, []string{"a", "b"}, []string{"a-route", "b-route"}))
	eventually(t, patience, equal)

	// A change, something new, and a removal go the whole way.
	w.Set(cache.Endpoint, "a-cluster", endpoints("a-cluster", 2, "127.0.0.1:2"))
	w.Set(cache.Cluster, "a-cluster", edsCluster("a-cluster", 2))
	w.service("c", "127.0.0.1:1")
	eventually(t, patience, func() error {
		for i, c := range clients {
			if err := first(c.AtLeast(cache.Endpoint, "a-cluster", 2), c.AtLeast(cache.Cluster, "a-cluster", 2), watchers[i].AtLeast(cache.Cluster, "a-cluster", 2),
				c.Has(cache.Listener, "a", "b", "c"), c.Has(cache.Endpoint, "a-cluster", "b-cluster", "c-cluster")); err != nil {
				return err
			}
		}
		return equal()
	})
	w.Delete(cache.Listener, "b")
	w.Delete(cache.Cluster, "b-cluster")
	w.Delete(cache.Listener, "c")
	w.Delete(cache.Cluster, "c-cluster")
	eventually(t, patience, complete([]string{"a-cluster"}, []string{"a"}, []string{"a-route"}))
	eventually(t, patience, equal)

	for i, c := range clients {
		if err := first(c.Sound(), watchers[i].Sound()); err != nil {
			t.Error(err)
		}
	}
	// Each relay says who it is, and whom it asks (DOWN-DELTA-19).
	heard := clients[2].Heard(cache.Cluster)
	if err := first(
		is("identifier", heard[len(heard)-1].identifier, "xds-relay/sidecar [xds-relay/host [xds-relay/host]]"),
		// Two, and for a moment each twice: it is opened again to tell of the next relay
		// (NODE-11), and the server may learn late that the old one has ended.
		cp.deltaADSOnly(), is("streams at the control plane at most", cp.Most(), min(cp.Most(), 4)),
	); err != nil {
		t.Fatal(err)
	}
}

// sameVersions complains if two clients hold different things, or the same at
// different versions.
func (c *deltaClient) sameVersions(d *deltaClient) error {
	versions := func(c *deltaClient) map[string]string {
		c.mu.Lock()
		defer c.mu.Unlock()
		all := make(map[string]string)
		for u, s := range c.types {
			for name, h := range s.held {
				all[u.Short()+" "+name] = h.version
			}
		}
		return all
	}
	a, b := versions(c), versions(d)
	if !maps.Equal(a, b) {
		return fmt.Errorf("%s and %s differ: %v, %v", c.name, d.name, a, b)
	}
	return nil
}

// The control plane is away for much longer than the does-not-exist timers: a name
// asked for meanwhile is reported missing on no hop, and comes when the control
// plane is back. What is there stays (MISS-7, H-2). The long form keeps the
// default timers, and an outage of 60 s.
func TestChainOutage(t *testing.T) {
	t.Parallel()
	outage := 2500 * time.Millisecond
	// unavailable_after is longer than the second that near takes to tell its control
	// plane of far (NODE-11).
	sets := append([]string{
		"timers.dne_timeout=300ms", "timers.dne_timeout_explicit=500ms", "timers.unavailable_after=1200ms",
	}, quickBackoff...)
	limit := patience
	if long() {
		outage, sets, limit = 60*time.Second, nil, time.Minute
	}
	w := newLinear(t)
	w.service("a", "127.0.0.1:1")
	cp := startControlPlane(t, w.Mux())
	near := startRelay(t, cp.addr, sets...)
	far := startRelay(t, near.addr, append(sets, "instance=far")...)
	envoys := []*envoy{startEnvoy(t, near.addr, "envoy-near", nil), startEnvoy(t, far.addr, "envoy-far", nil)}
	askers := []*deltaClient{openDelta(t, near.addr, "asker-near"), openDelta(t, far.addr, "asker-far")}
	for i, e := range envoys {
		askers[i].Subscribe(cache.Endpoint, "a-cluster")
		eventually(t, patience, func() error {
			return first(e.Has(cache.Endpoint, "a-cluster"), e.Has(cache.Route, "a-route"), askers[i].Has(cache.Endpoint, "a-cluster"))
		})
	}

	cp.Stop()
	w.service("new", "127.0.0.1:1")
	begin := time.Now()
	for _, a := range askers {
		a.Subscribe(cache.Endpoint, "new-cluster", "never-cluster")
		a.Subscribe(cache.Route, "new-route")
	}
	throughout(t, outage-time.Since(begin), func() error {
		for i, e := range envoys {
			a := askers[i]
			if err := first(
				a.NeverMissing(cache.Endpoint, "new-cluster"), a.NeverMissing(cache.Endpoint, "never-cluster"), a.NeverMissing(cache.Route, "new-route"),
				a.Has(cache.Endpoint, "a-cluster"), e.Has(cache.Cluster, "a-cluster"), e.Has(cache.Endpoint, "a-cluster"), e.Has(cache.Listener, "a"), e.Has(cache.Route, "a-route"),
			); err != nil {
				return err
			}
		}
		return nil
	})
	cp.Start()
	took := eventually(t, limit, func() error {
		for i, e := range envoys {
			if err := first(askers[i].Has(cache.Endpoint, "a-cluster", "new-cluster"), askers[i].Has(cache.Route, "new-route"), e.Has(cache.Endpoint, "a-cluster", "new-cluster"), e.Has(cache.Route, "a-route", "new-route"), e.Has(cache.Listener, "a", "new")); err != nil {
				return err
			}
		}
		return nil
	})
	t.Logf("outage of %v; everything was there %v after its end", outage, took)
	// Now upstream has been asked, and its silence counts: near by its own timer.
	// Far is told by near, which answers every name (MISS-5).
	eventually(t, limit, func() error {
		return first(askers[0].Missing(cache.Endpoint, "never-cluster"), askers[1].Missing(cache.Endpoint, "never-cluster"))
	})
	for i, a := range askers {
		if err := first(a.NeverMissing(cache.Endpoint, "new-cluster"), a.NeverMissing(cache.Route, "new-route"), a.Sound(), envoys[i].Sound()); err != nil {
			t.Error(err)
		}
	}
}
