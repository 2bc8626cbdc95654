//go:build linux

package chaos

import (
	"testing"
	"time"
)

// R15: one client rejects everything it is sent.
func TestR15_Nack(t *testing.T) {
	rounds, quiet, lasts := 2, time.Second/2, time.Second
	if long() {
		rounds, quiet, lasts = 40, 15*time.Second/2, 15*time.Second
	}
	r := begin(t, "R15", "NACK: 1 of 1000 NACKs every version for 10 min: others unaffected; <= 1 send per version to it; upstream never NACKed", usualLoad+"; 50 updates/s; it NACKs for 40 quarters of a minute, and accepts what comes in those between them, so that both are measured under the same conditions")
	h := newHistory(usual())
	up := startUpstream(t, h)
	relay := startRelay(t, up.addr)
	r.fleet = startFleet(t, h, relay.Addr, thousand())
	bad := r.fleet.clients[len(r.fleet.clients)-1] // a Delta client
	r.fleet.ignore(bad, true)
	stop := up.Churn(50)
	var without, with latencies
	for range rounds { // in turns, because the machine has other things to do, too
		r.fleet.measure(quiet, &without)
		bad.reject(true)
		for range int(lasts / quiet) { // slices of one length: the longer one, the more befalls it
			r.fleet.measure(quiet, &with)
		}
		bad.reject(false)
	}
	stop()
	r.fleet.Converge()

	versions, most := bad.sent()
	r.tell("versions sent to it", float64(versions), "")
	r.holds("most often that a version was sent to it", float64(most), "", "<= 1", most <= 1)
	r.none("NACKs that the last control plane has seen", up.Stats().Nacks)
	r.none("NACKs that the relay has sent upstream", int64(relay.Metrics().Sum("xds_relay_upstream_nacks_sent_total")))
	r.compare(&without, &with, "NACKs")
	r.sound()
	r.connected()
}
