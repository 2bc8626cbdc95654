//go:build linux

package chaos

import (
	"context"
	"testing"
	"time"
)

// R1: kill -9 of the control plane, again and again, under constant change.
func TestR1_UpstreamKill(t *testing.T) {
	const perSecond = 50
	kills := 3
	if long() {
		kills = 100
	}
	r := begin(t, "R1", "kill -9 upstream 100x at random times, 1000 clients, 50 updates/s continuous: 0 lost final states, 0 spurious removals, 0 client disconnects, every client converged < 2 s after upstream accepts again (backoff capped at 1 s)", usualLoad)
	h := newHistory(usual())
	up := startUpstream(t, h)
	relay := startRelay(t, up.addr)
	r.fleet = startFleet(t, h, relay.Addr, thousand())
	stop := up.Churn(perSecond)

	var converged durations
	for range kills {
		pause(context.Background(), between(200*time.Millisecond, span(2*time.Second)))
		up.Kill()
		pause(context.Background(), between(0, span(1500*time.Millisecond)))
		up.Start(false)
		converged.add(r.fleet.Converge())
	}
	stop()
	r.fleet.Converge()

	r.tell("clients", float64(len(r.fleet.clients)), "")
	r.tell("kills", float64(kills), "")
	r.tell("updates", float64(h.Step()), "")
	r.sound()
	r.connected()
	r.none("client streams that the relay ended", int64(relay.Metrics().Sum("xds_relay_client_disconnects_total")))
	r.none("responses that the relay NACKed upstream", int64(relay.Metrics().Sum("xds_relay_upstream_nacks_sent_total")))
	r.spread("all clients converged after upstream accepts again", converged, 2)
}
