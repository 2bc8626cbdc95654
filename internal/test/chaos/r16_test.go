//go:build linux

package chaos

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// R16: a bad network on both sides of the relay.
func TestR16_Network(t *testing.T) {
	rounds, minute, hole, lag, size := 2, 2*time.Second, time.Second, 20*time.Millisecond, thousand()
	if long() {
		rounds, minute, hole, lag, size.clients, size.sotw = 30, time.Minute, 5*time.Second, 200*time.Millisecond, 300, 30
	}
	r := begin(t, "R16", "network: 200 ms +- 50 ms latency, 1 % cut connections, 5 s blackholes each minute, 30 min: G2-G5 hold; convergence < 10 s after each",
		"300 clients; "+usualLoad+"; 50 updates/s; 200 ms +- 50 ms in each direction, between control plane and relay and between relay and clients; every 10 s 1 % of the clients' connections are cut, and once a minute the relay's own; once a minute 5 s without a byte on all links: by turns everything arrives afterwards, or it is lost and all connections are cut")
	h := newHistory(usual())
	up := startUpstream(t, h)
	above := peer.StartLink(t, up.addr)
	relay := newRelay(t, above.Addr)
	below := peer.StartLink(t, relay.Addr)
	links := []*peer.Link{above, below}
	for _, l := range links {
		l.Lag(lag, lag/4)
	}
	relay.Start()
	r.fleet = startFleet(t, h, below.Addr, size)
	stop := up.Churn(50)
	cuts := 0
	cut := func(share int) {
		for range max(1, len(r.fleet.clients)*share/100) {
			r.fleet.clients[rand.IntN(len(r.fleet.clients))].cut()
			cuts++
		}
	}

	var converged durations
	for round := range rounds {
		for i := range 6 {
			pause(context.Background(), (minute-hole)/6)
			cut(1)
			if i == 3 {
				up.command(cmdCut)
				cuts++
			}
		}
		lost := round%2 == 1
		for _, l := range links {
			if lost {
				l.Swallow(true)
			} else {
				l.Freeze()
			}
		}
		pause(context.Background(), hole)
		for _, l := range links {
			l.Swallow(false)
			l.Thaw()
		}
		if lost { // what was opened meanwhile, too: nobody will send its first bytes again
			for _, c := range r.fleet.clients {
				c.cut()
			}
			up.command(cmdCut)
		}
		converged.add(r.fleet.Converge())
	}
	stop()
	r.fleet.Converge()

	r.tell("clients", float64(len(r.fleet.clients)), "")
	r.tell("blackholes", float64(rounds), "")
	r.tell("connections cut", float64(cuts), "")
	r.tell("updates", float64(h.Step()), "")
	r.sound()
	r.tell("client streams that ended", float64(r.fleet.disconnects.Load()), "")
	r.spread("all clients converged after a blackhole", converged, 10)
}
