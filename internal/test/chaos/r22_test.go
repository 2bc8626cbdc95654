//go:build linux

package chaos

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/internal/certs/certstest"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// R22: the certificates, keys and authorities of everybody are replaced, again and again,
// under load.
func TestR22_Certificates(t *testing.T) {
	r := begin(t, "R22", "certificates of both hops rotated every 10 s for 10 min under load, by rename and by symlink swap: 0 failed handshakes, 0 dropped streams",
		"for each of the two ways: 300 clients over mutual TLS; "+usualLoad+"; 50 updates/s; at each step the control plane, the relay (both hops) and the clients have certificates of another authority, and trust that of the step before and of the next; the relay's connection to the control plane is cut after each step, and about 20 clients a second connect, ask for all clusters and go")
	for _, way := range []struct {
		name    string
		replace certstest.Replace
	}{{"rename", certstest.Rename}, {"symlink swap", certstest.Swap}} {
		r.part(t, way.name, func(t *testing.T, p *report) { rotate(t, p, way.replace) })
	}
}

func rotate(t *testing.T, r *report, replace certstest.Replace) {
	rounds, every, size, knocks := 10, 100*time.Millisecond, fleetSize{clients: 20, sotw: 2, names: 4}, 4
	if long() {
		rounds, every, size = 60, 10*time.Second, fleetSize{clients: 300, sotw: 30, names: 4}
	}
	turn := &rotation{t: t, replace: replace}
	above, asClient, asServer, below := turn.join("control-plane"), turn.join("relay-up"), turn.join("relay-down"), turn.join("clients")
	turn.step()

	h := newHistory(usual())
	up := &upstream{t: t, h: h, addr: peer.Address(t), certs: string(above)}
	up.Start(false)
	relay := startRelay(t, up.addr,
		"upstream.tls.ca="+asClient.path(caFile), "upstream.tls.cert="+asClient.path(certFile), "upstream.tls.key="+asClient.path(keyFile),
		"downstream.tls.client_ca="+asServer.path(caFile), "downstream.tls.cert="+asServer.path(certFile), "downstream.tls.key="+asServer.path(keyFile))
	r.fleet = newFleet(t, h)
	r.fleet.credentials = newClientCredentials(below)
	r.fleet.Add(relay.Addr, size)
	r.fleet.Converge()
	stop := up.Churn(50)
	var k knockers
	ctx, cancel := context.WithCancel(context.Background())
	var knocking sync.WaitGroup
	defer knocking.Wait()
	defer cancel()
	for range knocks {
		knocking.Go(func() { k.knock(ctx, relay.Addr, newClientCredentials(below), 200*time.Millisecond) })
	}

	var used durations
	for range rounds {
		begin := time.Now()
		notAfter := turn.step()
		used.add(eventually(t, func() error { return uses(relay, notAfter) }))
		streams := relay.Metrics().Sum("xds_relay_upstream_reconnects_total")
		eventually(t, func() error {
			m := relay.Metrics()
			lost := m.Sum("xds_relay_upstream_reconnects_total") > streams
			if !lost {
				up.command(cmdCut) // once more, if the relay was between two connections
			}
			if !lost || m["xds_relay_upstream_connected"] != 1 {
				return fmt.Errorf("the relay is not back at the control plane: %v\n%s", m["xds_relay_upstream_connected"], relay.Output)
			}
			return nil
		})
		pause(context.Background(), every-time.Since(begin))
	}
	cancel()
	knocking.Wait()
	stop()
	r.fleet.Converge()

	m := relay.Metrics()
	r.tell("clients", float64(len(r.fleet.clients)), "")
	r.tell("rotations", float64(rounds), "")
	r.tell("updates", float64(h.Step()), "")
	r.holds("changes of files that the relay took in, of two sections each time", m.Sum("xds_relay_certificate_reloads_total", `result="ok"`), "", fmt.Sprint(">= ", 2*rounds), m.Sum("xds_relay_certificate_reloads_total", `result="ok"`) >= float64(2*rounds))
	r.none("changes of files that it could not use", int64(m.Sum("xds_relay_certificate_reloads_total", `result="failed"`)))
	r.tell("clients that came and went", float64(k.handshakes.Load()), "")
	for _, why := range k.why {
		r.note("a client that came: %s", why)
	}
	r.none("of them refused or unanswered", k.failures.Load())
	r.none("handshakes that failed at the relay", int64(m.Sum("xds_relay_handshake_failures_total")))
	r.holds("connections that the relay made to the control plane after a rotation", m.Sum("xds_relay_upstream_reconnects_total"), "", fmt.Sprint(">= ", rounds), m.Sum("xds_relay_upstream_reconnects_total") >= float64(rounds))
	r.sound()
	r.connected()
	r.spread("the relay uses both new certificates", used, 5)
}

// uses: the relay uses the certificates that expire at a time, on both hops.
func uses(relay *peer.Relay, notAfter time.Time) error {
	m, err := relay.Scrape()
	if err != nil {
		return err
	}
	for _, hop := range []string{"upstream", "downstream"} {
		if got := m.Sum("xds_relay_certificate_expiry_timestamp_seconds", `file="cert"`, fmt.Sprintf("hop=%q", hop)); got != float64(notAfter.Unix()) {
			return fmt.Errorf("the certificate of hop %s expires at %.0f, not at %d; the relay says\n%s", hop, got, notAfter.Unix(), relay.Output)
		}
	}
	return nil
}
