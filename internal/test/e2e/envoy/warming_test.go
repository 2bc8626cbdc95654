package envoy

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// hold is the default of timers.warming_hold.
const hold = 5 * time.Second

// A cluster that never warms delays no route for longer than warming_hold, however many
// routes change meanwhile (ORDER-3).
func TestClusterThatNeverWarms(t *testing.T) {
	limit := hold + slack
	if long() {
		limit = hold + time.Second
	}
	for _, w := range variants(way{relays: 1}) {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			m := w.makes()
			has := m.service("a", realenvoy.Backend(t, "a"))
			has.put(cache.Route, "web", routes("web", saying("0")))
			// The relay would else say after 15 s that there are none, and the cluster
			// were warm without any.
			s := play(t, w, has, "timers.dne_timeout=5m", "timers.dne_timeout_explicit=5m")
			e, address := s.ready("envoy", "0")
			s.plane.Change(func(has world) {
				has.put(cache.Cluster, "cold", m.cluster("cold"))
			})
			peer.Eventually(t, patience, func() error {
				d, err := e.Dump()
				if err == nil && !d.Clusters["cold"].Warming {
					err = fmt.Errorf("the cluster does not warm: %v", d.Clusters)
				}
				return err
			})
			const changes = 20
			var changed [changes + 1]time.Time
			var took []time.Duration
			begin := time.Now()
			for made, seen := 0, 0; seen < changes; peer.Wait(20 * time.Millisecond) {
				if made < changes && time.Since(begin) >= time.Duration(made)*time.Second {
					made++
					s.plane.Change(func(has world) { has.put(cache.Route, "web", routes("web", saying(strconv.Itoa(made)))) })
					changed[made] = time.Now()
				}
				answer, failure := realenvoy.Get(address)
				n, err := strconv.Atoi(answer)
				if err != nil {
					t.Fatalf("a request failed: %s", failure)
				}
				for ; seen < n; seen++ {
					took = append(took, time.Since(changed[seen+1]).Round(time.Millisecond))
				}
				if seen < made && time.Since(changed[seen+1]) > limit {
					t.Fatalf("change %d is not at the Envoy after %v; before: %v", seen+1, limit, took)
				}
			}
			t.Logf("from the control plane to the Envoy: %v", took)
		})
	}
}
