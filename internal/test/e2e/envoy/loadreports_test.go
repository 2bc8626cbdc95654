package envoy

import (
	"fmt"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// An Envoy reports its load to its xDS server, the relay: what the control plane has of it is what was sent, also through
// two relays, and if they add up. A restart of the control plane ends no request, and the reports begin again.
func TestLoadReports(t *testing.T) {
	realenvoy.Need(t)
	for _, relays := range []int{0, 1, 2, -1, -2} { // those below 0 add up
		summed := relays < 0
		if summed {
			relays = -relays
		}
		t.Run(fmt.Sprintf("relays=%d,summed=%v", relays, summed), func(t *testing.T) {
			t.Parallel()
			m := byADS()
			plane := newPlane(t, m.service("a", realenvoy.Backend(t, "a")))
			plane.loads = peer.NewLoads(500*time.Millisecond, "a")
			plane.Start()
			addr := plane.addr
			for tier := range relays {
				addr = startRelay(t, fmt.Sprintf("tier-%d", tier+1), addr, fmt.Sprintf("passthrough=[{service: %s, aggregate: %v}]", config.LoadReporting, summed)).addr
			}
			b := realenvoy.ADS(realenvoy.Node{ID: "envoy", Cluster: "e2e"}, realenvoy.Source{Target: addr})
			b.ReportLoad()
			e := realenvoy.Start(t, b, realenvoy.Options{Name: "envoy"})
			e.WaitReady(patience)
			address := listens(t, e, "web")
			peer.Eventually(t, patience, func() error { return answers(address, "a") })

			reports := func(more int) {
				t.Helper()
				from := plane.loads.Reports()
				peer.Eventually(t, patience, func() error {
					if n := plane.loads.Reports() - from; n < more {
						return fmt.Errorf("%d reports of %d have come", n, more)
					}
					return nil
				})
			}
			for _, restarts := range []bool{false, true} {
				if restarts {
					plane.Stop()
					plane.Start()
				}
				reports(3) // an Envoy counts from when it was asked for reports
				before := plane.loads.Issued("a")
				load := realenvoy.Drive(t, address, rate())
				peer.Wait(2 * time.Second)
				c := load.Stop()
				if c.Failed() > 0 {
					t.Errorf("requests failed: %v", c)
				}
				sum := func() error { return peer.Is("requests reported", plane.loads.Issued("a")-before, uint64(c.Sent)) }
				peer.Eventually(t, patience, sum)
				reports(3)
				if err := sum(); err != nil {
					t.Error(err)
				}
				t.Logf("%d requests were sent and reported", c.Sent)
			}
		})
	}
}
