package e2e

import (
	"fmt"
	"testing"

	"github.com/xds-relay/xds-relay/cache"
)

// A relay whose last client has left says that its control plane goes and comes back, each time,
// although nothing is asked of it and so no response shows it.
func TestIdleRelayTellsOfRestarts(t *testing.T) {
	t.Parallel()
	for name, sets := range map[string][]string{
		"with health checks":    {"upstream.health_check=auto"},
		"without health checks": {"upstream.health_check=off", "timers.unavailable_after=300ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newLinear(t)
			w.service("a", "127.0.0.1:1")
			cp := startControlPlane(t, w.Mux())
			r := startRelay(t, cp.addr, append(append(sets, quickBackoff...), "timers.name_linger=100ms", "timers.group_linger=1h")...)
			c := openDelta(t, r.addr, "client")
			c.Wildcard(cache.Cluster)
			eventually(t, patience, func() error { return c.Has(cache.Cluster, "a-cluster") })
			if err := is("the group in /clients", r.Clients()[0].Types[0].Group, "default"); err != nil {
				t.Error(err)
			}
			c.Close()
			eventually(t, patience, func() error {
				if state := r.Upstream()["default"].Entries[0].Condition; state != "idle" {
					return fmt.Errorf("the relay is %s", state)
				}
				return nil
			})
			lines := func(want int, says string) {
				t.Helper()
				eventually(t, patience, func() error {
					return is(says, len(r.log.Lines(says, "address="+cp.addr)), want)
				})
			}
			for n := 1; n <= 2; n++ {
				cp.Stop()
				lines(n, "lost the control plane")
				lines(n, "refuses connections, and did not before")
				cp.Start()
				lines(n, "the control plane answers again")
			}
			again := openDelta(t, r.addr, "again")
			again.Wildcard(cache.Cluster)
			eventually(t, patience, func() error { return again.Has(cache.Cluster, "a-cluster") })
			lines(2, "the control plane answers again")
		})
	}
}
