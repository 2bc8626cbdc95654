//go:build linux

package e2e

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// TestOneVersionApart: this version and the one before work with each other, whichever comes first: in one
// tier, one behind the other and side by side, and with each other's snapshot. So an upgrade may take one replica
// after the other, and may be taken back (docs/versions.md).
func TestOneVersionApart(t *testing.T) {
	t.Parallel()
	earlier := peer.Earlier(t)
	for _, tt := range []struct{ name, first, second string }{
		{"the version before is above", earlier, ""},
		{"this version is above", "", earlier},
	} {
		t.Run(tt.name, func(t *testing.T) { inOneTier(t, tt.first, tt.second) })
	}
	for _, tt := range []struct{ name, writer, reader string }{
		{"an upgrade", earlier, ""},
		{"a way back", "", earlier},
	} {
		t.Run(tt.name+" keeps the snapshot", func(t *testing.T) { overASnapshot(t, tt.writer, tt.reader) })
	}
}

func inOneTier(t *testing.T, upper, lower string) {
	w := newLinear(t)
	for _, name := range []string{"a", "b"} {
		w.service(name, "127.0.0.1:1")
	}
	cp := startControlPlane(t, w.Mux())
	above := serveBy(t, upper, cp.addr)
	below := serveBy(t, lower, above.Addr)
	beside := serveBy(t, lower, cp.addr)
	clients := []*envoy{startEnvoy(t, above.Addr, "envoy-1", nil), startEnvoy(t, below.Addr, "envoy-2", nil), startEnvoy(t, beside.Addr, "envoy-3", nil)}
	watcher := openSotw(t, below.Addr, "grpc")
	watcher.Watch(cache.Cluster, "a-cluster", "b-cluster")
	roamer := openDelta(t, above.Addr, "roamer")
	roamer.Wildcard(cache.Cluster)
	roamer.Subscribe(cache.Endpoint, "a-cluster")

	has := func(services ...string) func() error {
		var clusters, routes []string
		for _, s := range services {
			clusters, routes = append(clusters, s+"-cluster"), append(routes, s+"-route")
		}
		return func() error {
			for _, c := range clients {
				if err := first(c.Has(cache.Cluster, clusters...), c.Has(cache.Endpoint, clusters...), c.Has(cache.Listener, services...), c.Has(cache.Route, routes...)); err != nil {
					return err
				}
			}
			// The recipe of versions is the same, so nothing is sent twice (RECON-2).
			return first(clients[0].sameVersions(clients[1].deltaClient), clients[0].sameVersions(clients[2].deltaClient))
		}
	}
	eventually(t, patience, has("a", "b"))
	eventually(t, patience, func() error {
		return first(watcher.Has(cache.Cluster, "a-cluster", "b-cluster"), roamer.Has(cache.Cluster, "a-cluster", "b-cluster"), roamer.Has(cache.Endpoint, "a-cluster"))
	})

	// A client that moves is sent what changed, and nothing else.
	for i, to := range []*peer.Relay{beside, below, above} {
		roamer.Forget()
		roamer.MoveTo(to.Addr)
		version := i + 2
		w.Set(cache.Cluster, "b-cluster", edsCluster("b-cluster", version))
		eventually(t, patience, func() error { // all relays: one that lags behind sends what it has
			return first(roamer.AtLeast(cache.Cluster, "b-cluster", version), clients[0].AtLeast(cache.Cluster, "b-cluster", version),
				clients[1].AtLeast(cache.Cluster, "b-cluster", version), clients[2].AtLeast(cache.Cluster, "b-cluster", version))
		})
		if err := roamer.HeardOnly("CDS +b-cluster"); err != nil {
			t.Errorf("after move %d: %v", i+1, err)
		}
	}

	// Something new, and a removal.
	w.service("c", "127.0.0.1:1")
	eventually(t, patience, has("a", "b", "c"))
	w.Delete(cache.Listener, "b")
	w.Delete(cache.Cluster, "b-cluster")
	eventually(t, patience, has("a", "c"))
	eventually(t, patience, func() error { return watcher.Has(cache.Cluster, "a-cluster") })
	for _, c := range clients {
		if err := c.Sound(); err != nil {
			t.Error(err)
		}
	}
	if err := first(watcher.Sound(), roamer.Sound()); err != nil {
		t.Error(err)
	}
}

func overASnapshot(t *testing.T, writer, reader string) {
	w := newLinear(t)
	for _, name := range []string{"a", "b", "c"} {
		w.service(name, "127.0.0.1:1")
	}
	cp := startControlPlane(t, w.Mux())
	dir := filepath.Join(t.TempDir(), "state")
	sets := []string{"cache.snapshot.dir=" + dir, "cache.snapshot.interval=20ms", "timers.dne_timeout=1s", "downstream.drain_delay=0s"}
	r := serveBy(t, writer, cp.addr, sets...)
	c := openDelta(t, r.Addr, "c")
	c.Wildcard(cache.Cluster)
	c.Subscribe(cache.Endpoint, "a-cluster", "b-cluster")
	eventually(t, patience, func() error {
		return first(c.Has(cache.Cluster, "a-cluster", "b-cluster", "c-cluster"), c.Has(cache.Endpoint, "a-cluster", "b-cluster"))
	})
	// A set may be sent before it is known to be complete, which the snapshot waits for.
	eventually(t, patience, func() error {
		if wanted, _, err := onDisk(dir); err != nil || wanted != 5 {
			return fmt.Errorf("%d resources are on disk: %w", wanted, err)
		}
		return nil
	})
	c.Close()
	cp.Stop()
	r.Stop()

	again := serveBy(t, reader, cp.addr, sets...)
	eventually(t, patience, func() error { return logs(again, "snapshot loaded: 5 resources of 2 types as of ") })
	c.Forget()
	c.MoveTo(again.Addr)
	newcomer := openSotw(t, again.Addr, "newcomer")
	newcomer.Watch(cache.Cluster, "a-cluster", "c-cluster")
	eventually(t, patience, func() error { return newcomer.Has(cache.Cluster, "a-cluster", "c-cluster") })
	w.Set(cache.Cluster, "c-cluster", edsCluster("c-cluster", 2))
	cp.Start()
	eventually(t, patience, func() error { return c.AtLeast(cache.Cluster, "c-cluster", 2) })
	if err := first(c.HeardOnly("CDS +c-cluster"), c.Sound(), newcomer.Sound()); err != nil {
		t.Error(err)
	}
}
