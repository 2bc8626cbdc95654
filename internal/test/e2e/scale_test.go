package e2e

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	gcptypes "github.com/envoyproxy/go-control-plane/pkg/cache/types"

	"github.com/xds-relay/xds-relay/cache"
)

// 200 Delta clients and 200 SotW clients (a quarter of all in the short form) on one relay with 1,000 clusters and
// 10,000 endpoint assignments: upstream sees one stream, or two where a type is
// wanted both ways, and each name subscribed once; one changed cluster reaches
// every client.
func TestScale(t *testing.T) {
	clients, clusters, assignments := 50, 250, 2500 // clients of each kind
	if long() {
		clients, clusters, assignments = 200, 1000, 10_000
	}
	perClient := assignments / clients
	clusterName := func(i int) string { return fmt.Sprintf("cluster-%04d", i%clusters) }
	endpointName := func(i int) string { return fmt.Sprintf("endpoints-%05d", i%assignments) }

	for _, wildcard := range []bool{false, true} {
		t.Run(fmt.Sprintf("wildcard=%v", wildcard), func(t *testing.T) {
			w := newLinear(t)
			all := make(map[string]gcptypes.Resource)
			for i := range clusters {
				all[clusterName(i)] = staticCluster(clusterName(i), 1)
			}
			w.Fill(cache.Cluster, all)
			all = make(map[string]gcptypes.Resource)
			for i := range assignments {
				all[endpointName(i)] = endpoints(endpointName(i), 1, "127.0.0.1:1", "127.0.0.1:2")
			}
			w.Fill(cache.Endpoint, all)
			cp := startControlPlane(t, w.Mux())
			// LinearCache goes over all 10,000 names at each request that adds one; a
			// longer window makes these fewer, and the test faster, not different.
			r := startRelay(t, cp.addr, "upstream.coalesce_window=200ms")

			// Every client watches cluster 0, and a slice of the rest.
			names := func(i int) (watched, eds []string) {
				watched = []string{clusterName(0)}
				for n := range 2 * clusters / clients {
					if name := clusterName(i*clusters/clients + n); name != watched[0] {
						watched = append(watched, name)
					}
				}
				for n := range perClient {
					eds = append(eds, endpointName(i*perClient+n))
				}
				return watched, eds
			}
			begin := time.Now()
			deltas := make([]*deltaClient, clients)
			sotws := make([]*sotwClient, clients)
			for i := range clients {
				watched, eds := names(i)
				d := openDelta(t, r.addr, fmt.Sprintf("delta-%d", i))
				if wildcard {
					d.Wildcard(cache.Cluster)
				} else {
					d.Subscribe(cache.Cluster, watched...)
				}
				d.Subscribe(cache.Endpoint, eds...)
				s := openSotw(t, r.addr, fmt.Sprintf("sotw-%d", i))
				s.Watch(cache.Cluster, watched...)
				s.Watch(cache.Endpoint, eds...)
				deltas[i], sotws[i] = d, s
			}
			everything := numberedBy(clusterName, clusters)
			forAll := func(check func(i int, d *deltaClient, s *sotwClient) error) func() error {
				return func() error {
					for i := range clients {
						if err := check(i, deltas[i], sotws[i]); err != nil {
							return err
						}
					}
					return nil
				}
			}
			eventually(t, 2*patience, forAll(func(i int, d *deltaClient, s *sotwClient) error {
				watched, eds := names(i)
				if err := first(s.Has(cache.Cluster, watched...), s.Has(cache.Endpoint, eds...), d.Has(cache.Endpoint, eds...)); err != nil {
					return err
				}
				if wildcard {
					watched = everything
				}
				return d.Has(cache.Cluster, slices.Clone(watched)...)
			}))
			t.Logf("%d clients complete after %v", 2*clients, time.Since(begin))

			streams, subscribed := 1, clusters
			if wildcard {
				streams, subscribed = 2, clusters+1 // and the wildcard, once
			}
			// What the wildcard lends is there before upstream has been asked for the last names.
			eventually(t, patience, func() error {
				return first(cp.subscribedOnce(cache.Cluster, subscribed), cp.subscribedOnce(cache.Endpoint, assignments))
			})
			if err := first(
				cp.deltaADSOnly(),
				is("streams upstream at most", cp.Most(), streams), is("streams upstream", cp.Open(), streams),
			); err != nil {
				t.Fatal(err)
			}

			for revision := 2; revision <= 4; revision++ {
				begin = time.Now()
				w.Set(cache.Cluster, clusterName(0), staticCluster(clusterName(0), revision))
				eventually(t, patience, forAll(func(_ int, d *deltaClient, s *sotwClient) error {
					return first(d.AtLeast(cache.Cluster, clusterName(0), revision), s.AtLeast(cache.Cluster, clusterName(0), revision))
				}))
				t.Logf("a changed cluster has reached all %d clients after %v", 2*clients, time.Since(begin))
			}
			if err := first(
				forAll(func(_ int, d *deltaClient, s *sotwClient) error { return first(d.Sound(), s.Sound()) })(),
				is("streams upstream at most", cp.Most(), streams), is("streams upstream ever", cp.Opened(), streams),
			); err != nil {
				t.Fatal(err)
			}
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			t.Logf("heap in use, peers included: %d MiB, %d goroutines", m.HeapInuse>>20, runtime.NumGoroutine())
		})
	}
}

func numberedBy(name func(int) string, n int) []string {
	names := make([]string, 0, n)
	for i := range n {
		names = append(names, name(i))
	}
	return names
}
