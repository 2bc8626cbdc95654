package envoy

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// late is how much later than its cluster the endpoints come.
const late = 100 * time.Millisecond

// turns are how often a route is turned.
func turns() int { return often(100, 5) }

// A route is turned to a new cluster under load, whose endpoints come late; the old one
// goes. With a control plane that waits for ACKs no request fails (R31, ORDER-3).
func TestRouteTurn(t *testing.T) {
	for _, w := range slices.Concat(variants(way{relays: 1, waits: true}), variants(way{relays: 2, waits: true})) {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			if c := turn(t, w); c.Failed() > 0 {
				t.Errorf("%v", c)
			}
		})
	}
}

// With one that does not wait, no more fail than without a relay (R31). That is for how long
// there is no cluster, and one request a turn more or less is chance.
func TestRouteTurnUnawaited(t *testing.T) {
	for _, w := range variants(way{}) {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			direct := turn(t, w).Failed()
			for w.relays = 1; w.relays <= 2; w.relays++ {
				if c := turn(t, w); c.Failed() > direct+turns() {
					t.Errorf("%v: %d more than without a relay: %v", w, c.Failed()-direct, c)
				}
			}
		})
	}
}

func turn(t *testing.T, w way) realenvoy.Count {
	t.Helper()
	backends := []string{realenvoy.Backend(t, "even"), realenvoy.Backend(t, "odd")}
	names := []string{"even", "odd"}
	m := w.makes()
	s := play(t, w, m.service("cluster-0", backends[0]))
	e, address := s.ready("envoy", "even")
	load := realenvoy.Drive(t, address, rate())
	var took []time.Duration
	for i := 1; i <= turns(); i++ {
		was, is_ := fmt.Sprintf("cluster-%d", i-1), fmt.Sprintf("cluster-%d", i)
		begin := time.Now()
		s.plane.Change(func(has world) {
			has.put(cache.Cluster, is_, m.cluster(is_))
			has.put(cache.Route, "web", routes("web", to(is_)))
			has.drop(cache.Cluster, was)
			has.drop(cache.Endpoint, was)
		})
		peer.Wait(late)
		s.plane.Change(func(has world) { has.put(cache.Endpoint, is_, endpoints(is_, backends[i%2])) })
		peer.Eventually(t, patience, func() error { return peer.Is("answer", load.Last(), names[i%2]) })
		took = append(took, time.Since(begin))
		// The old cluster is gone before the next turn, which is then a turn of its own.
		peer.Eventually(t, patience, func() error {
			c, err := e.Clusters()
			if _, still := c[was]; err == nil && still {
				err = fmt.Errorf("%s is still there", was)
			}
			return err
		})
	}
	c := load.Stop()
	slices.Sort(took)
	t.Logf("%v: %d turns in %v (median) to %v: %v", w, turns(), took[len(took)/2], took[len(took)-1], c)
	return c
}
