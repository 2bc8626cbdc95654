//go:build linux

package chaos

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// R11: three relays are replaced one after the other, as a rollout does it: each is out of the list of those that clients
// connect to while it drains, and its successor knows nothing. Clients that are new get everything all the time, from relays
// that stay and from a successor.
func TestR11_RollingRestart(t *testing.T) {
	size, drain, age := thousand(), 3*time.Second, 6*time.Second
	if long() {
		size.clients, size.sotw, drain, age = 3000, 300, 30*time.Second, 2*time.Minute
	}
	r := begin(t, "R11", "rolling restart of 3 replicas, 3000 clients: 0 clients without configuration; streams end never faster than 2x clients/drain; no replica > 45 % of clients after one max_connection_age",
		usualLoad+"; 3000 clients; 50 updates/s; drain_delay 1s, drain 30s, max_connection_age 2m; no snapshots; in each drain, and at each successor, 1 in 100 more clients that have nothing yet")
	h := newHistory(usual())
	up := startUpstream(t, h)
	var relays []*peer.Relay
	var all []string
	for range 3 {
		relay := startRelay(t, up.addr, fmt.Sprintf("downstream.drain=%v", drain), "downstream.drain_delay=1s", fmt.Sprintf("downstream.max_connection_age=%v", age))
		relays, all = append(relays, relay), append(all, relay.Addr)
	}
	r.fleet = newFleet(t, h)
	r.fleet.replicas.Store(&all)
	r.fleet.Add(all[0], size)
	r.fleet.Converge()
	clients := len(r.fleet.clients)
	stop := up.Churn(50)

	// comes connects clients that have nothing, to one relay, and tells when they have everything.
	comes := func(to *peer.Relay) time.Duration {
		added := r.fleet.Add(to.Addr, fleetSize{clients: max(2, clients/100), names: 4, habit: func(_ int, c *client) { c.pinned.Store(true) }})
		took := r.fleet.converge(added)
		for _, c := range added {
			c.pinned.Store(false)
		}
		return took
	}
	var staying, fresh, restarts durations
	began := time.Now()
	for i, relay := range relays {
		others := slices.Delete(slices.Clone(all), i, i+1)
		r.fleet.epoch.Add(1) // another relay may be a little behind
		r.fleet.replicas.Store(&others)
		begin, stopped := time.Now(), make(chan struct{})
		go func() {
			defer close(stopped)
			relay.Stop()
		}()
		pause(context.Background(), drain/2)
		staying.add(comes(relays[(i+1)%3]))
		<-stopped
		relay.Start()
		restarts.add(time.Since(begin))
		r.fleet.epoch.Add(1)
		fresh.add(comes(relay))
		r.fleet.replicas.Store(&all)
	}
	rolled := time.Since(began)
	rate := most(r.fleet.endings(), time.Second)
	r.fleet.Converge()
	pause(context.Background(), age+age/10)
	stop()
	r.fleet.Converge()

	largest := 0.0
	for _, relay := range relays {
		largest = max(largest, relay.Metrics().Sum("xds_relay_clients"))
	}
	r.tell("clients", float64(clients), "")
	r.tell("the three restarts took", seconds(rolled), "s")
	r.sound()
	r.spread("a client that is new has everything, from a relay that stays", staying, 5)
	r.spread("a client that is new has everything, from a successor that knew nothing", fresh, 5)
	r.spread("a client that was sent away hears from another relay", r.fleet.gaps, 5)
	r.within("most streams that ended in one second of the restarts", float64(rate), "", fmt.Sprintf("<= 2 x %d / %v", clients, drain), float64(rate) <= 2*float64(clients)/drain.Seconds())
	r.below("largest share of a replica after one max_connection_age", 100*largest/float64(len(r.fleet.clients)), 45, "%")
}

// most is how many of some moments lie within a span at most.
func most(at []time.Time, within time.Duration) (n int) {
	slices.SortFunc(at, time.Time.Compare)
	first := 0
	for i := range at {
		for at[i].Sub(at[first]) > within {
			first++
		}
		n = max(n, i-first+1)
	}
	return n
}
