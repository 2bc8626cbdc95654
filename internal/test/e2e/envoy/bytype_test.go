package envoy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	gcpserver "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// Endpoints come from another control plane than everything else, one that has the EndpointDiscoveryService and nothing
// more (UP-27). Each is asked for its types only, over one stream. While one of them is away no request fails, and
// nothing is removed.
func TestByType(t *testing.T) {
	for _, w := range variants(way{relays: 1}) {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			byType(t, w)
		})
	}
}

// byTypeClusters is how many clusters get their endpoints from there.
const byTypeClusters = 500

func byType(t *testing.T, w way) {
	realenvoy.Need(t)
	m, backend := w.makes(), realenvoy.Backend(t, "hello")
	rest, eds := m.service("cluster-0", backend), world{}
	delete(rest, cache.Endpoint)
	for i := range byTypeClusters {
		name := fmt.Sprintf("cluster-%d", i)
		rest.put(cache.Cluster, name, m.cluster(name))
		eds.put(cache.Endpoint, name, endpoints(name, backend))
	}
	most := newSnapshots(t, rest, false, ads)
	most.Start()
	only := newSnapshots(t, eds, false, func(s *grpc.Server, all gcpserver.Server) {
		endpointservice.RegisterEndpointDiscoveryServiceServer(s, all)
	})
	only.Start()
	by := func(p *snapshots) string {
		return fmt.Sprintf(`upstream.by_type=[{"name":"endpoints","types":["EDS"],"services":"per_type","address":%q}]`, p.addr)
	}
	r := startRelay(t, "relay", most.addr, by(only), "cache.snapshot.dir="+t.TempDir(), "downstream.ready_types=[CDS]")
	tap := peer.StartTap(t, "what the Envoy said and heard", r.addr, peer.TapOptions{})
	e := startEnvoy(t, w, "envoy", tap.Addr)
	e.WaitReady(patience)
	address := listens(t, e, "web")
	peer.Eventually(t, patience, func() error { return answers(address, "hello") })
	peer.Eventually(t, patience, func() error {
		c, err := e.Clusters()
		for name := range eds[cache.Endpoint] {
			if err == nil && len(c[name]) != 1 {
				err = fmt.Errorf("%s has the endpoints %v", name, c[name])
			}
		}
		return err
	})
	load, before := realenvoy.Drive(t, address, rate()), tap.Mark()
	for _, away := range []*snapshots{only, most} {
		away.Stop()
		peer.Wait(time.Duration(often(60, 3)) * time.Second)
		away.Start()
		opened := func() error {
			away.mu.Lock()
			defer away.mu.Unlock()
			return peer.Is("streams", away.open, 1)
		}
		peer.Eventually(t, patience, opened)
	}
	// Each is followed again, and it is the right one.
	only.Change(func(has world) { has.put(cache.Endpoint, "cluster-1", endpoints("cluster-1", "127.0.0.1:9")) })
	most.Change(func(has world) { has.put(cache.Route, "web", routes("web", to("cluster-2"))) })
	peer.Eventually(t, patience, func() error { return reaches(e, "cluster-1", "127.0.0.1:9") })
	// Another address of it is reloaded.
	there := maps.Clone(eds[cache.Endpoint])
	moved := newSnapshots(t, world{cache.Endpoint: there}, false, only.offers)
	moved.Change(func(has world) { has.put(cache.Endpoint, "cluster-3", endpoints("cluster-3", "127.0.0.1:8")) })
	moved.Start()
	r.reconfigure(by(moved))
	peer.Eventually(t, patience, func() error { return reaches(e, "cluster-3", "127.0.0.1:8") })
	unharmed(t, e, load)
	for _, m := range tap.Since(before) {
		if m.Response && len(m.Less) > 0 {
			t.Errorf("the Envoy was told that %s %v are gone", m.URL.Short(), m.Less)
		}
	}
	if got := asked(only); got != "EDS" {
		t.Errorf("the control plane for endpoints was asked for %s", got)
	}
	if got := asked(most); strings.Contains(got, "EDS") || !strings.Contains(got, "CDS") {
		t.Errorf("the other control plane was asked for %s", got)
	}
	for p, want := range map[*snapshots]int{only: 2, most: 2, moved: 1} {
		p.Stop()
		if p.opens != want {
			t.Errorf("%d streams to %s, want one, and one after its outage", p.opens, p.addr)
		}
	}
	// A relay that begins without either has everything from disk.
	r.Close()
	r.Start()
	again := startEnvoy(t, w, "newcomer", r.addr)
	again.WaitReady(patience)
	address = listens(t, again, "web")
	peer.Eventually(t, patience, func() error { return answers(address, "hello") })
}

// reaches complains if a cluster has other endpoints than that.
func reaches(e *realenvoy.Envoy, cluster, endpoint string) error {
	c, err := e.Clusters()
	if err != nil {
		return err
	}
	return peer.Is(cluster, strings.Join(c[cluster], ", "), endpoint)
}

// asked are the types that a control plane was asked for.
func asked(p *snapshots) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for u := range maps.Keys(p.asked) {
		all = append(all, u.Short())
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
