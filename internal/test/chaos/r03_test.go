//go:build linux

package chaos

import (
	"context"
	"math"
	"net/http"
	"testing"
	"time"
)

// R3: the control plane is away for long. Who was there, and who comes, is served;
// the relay is ready and says how old its knowledge is.
func TestR3_ServeStale(t *testing.T) {
	down, looks, newcomers := 3*time.Second, 4, 10
	if long() {
		down, looks, newcomers = 5*time.Minute, 20, 100
	}
	r := begin(t, "R3", "upstream down 5 min (real): existing and new clients served; readyz 200; staleness gauge right +-1 s; first change after return delivered < 2 s (1 h of virtual time: TestOutage_ServeStale in internal/relay)", usualLoad)
	h := newHistory(usual())
	up := startUpstream(t, h)
	relay := startRelay(t, up.addr)
	r.fleet = startFleet(t, h, relay.Addr, thousand())
	stop := up.Churn(50)
	pause(context.Background(), span(5*time.Second))
	stop()
	r.fleet.Converge()
	spoken := time.Now() // by whom everything had come
	up.Kill()

	notReady, off := int64(0), 0.0
	var served time.Duration
	for look := range looks {
		pause(context.Background(), down/time.Duration(looks))
		if code, _, err := relay.Get("/readyz"); err != nil || code != http.StatusOK {
			notReady++
		}
		last := relay.Metrics().Sum("xds_relay_upstream_last_message_timestamp_seconds")
		off = max(off, math.Abs(last-float64(spoken.UnixMicro())/1e6))
		if look == looks/2 {
			size := thousand()
			size.clients, size.sotw = newcomers, newcomers/10
			r.fleet.Add(relay.Addr, size)
			served = r.fleet.Converge()
		}
	}
	r.none("looks at /readyz that did not find 200", notReady)
	r.within("staleness gauge is off by", off, "s", "<= 1", off <= 1)
	r.tell("new clients during the outage", float64(newcomers), "")
	r.tell("new clients complete after", seconds(served), "s")

	up.Start(false)
	up.Step()
	r.below("first change after upstream accepts again, at the last client", seconds(r.fleet.Converge()), 2, "s")
	r.tell("outage", seconds(down), "s")
	r.sound()
	r.connected()
}
