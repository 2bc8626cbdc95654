package chaos

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"
)

// usual is the load of most targets: clusters that all clients ask for, of which one
// in 50 steps changes one, and endpoint assignments of which each client asks for
// 4, so that each of the other steps concerns 8 clients. One step in 20 removes
// something.
func usual() world {
	w := world{Seed: 1, Clusters: 50, Endpoints: 500, ClusterEvery: 50, Padding: 400, RemoveOneIn: 20}
	if !long() {
		w.Clusters, w.Endpoints = 10, 30
	}
	return w
}

const usualLoad = "50 clusters (wildcard, every client) of which 1 in 50 updates changes one, 500 endpoint assignments of 0.5 KiB (by name, 4 for each client, so that an update concerns 8 of 1000 clients); 1 in 20 updates removes; 10 % of the clients SotW, the rest Delta; the short form has 60 clients, 10 clusters, 30 assignments"

// thousand is the fleet of most targets in their long form, and a smaller one in
// their short form.
func thousand() fleetSize {
	if long() {
		return fleetSize{clients: 1000, sotw: 100, names: 4}
	}
	return fleetSize{clients: 60, sotw: 6, names: 4}
}

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
	r.fleet = startFleet(t, h, relay.addr, thousand())
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
	r.none("client streams that the relay ended", int64(relay.metrics().sum("xds_relay_client_disconnects_total")))
	r.none("responses that the relay NACKed upstream", int64(relay.metrics().sum("xds_relay_upstream_nacks_sent_total")))
	r.spread("all clients converged after upstream accepts again", converged, 2)
}

// between is a random time.
func between(a, b time.Duration) time.Duration { return a + rand.N(b-a) }

// span is how long something lasts: a third of it in the short form.
func span(d time.Duration) time.Duration {
	if long() {
		return d
	}
	return d / 3
}
