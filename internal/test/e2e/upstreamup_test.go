package e2e

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/admin"
	"github.com/xds-relay/xds-relay/internal/relay"
	"github.com/xds-relay/xds-relay/internal/test/e2e/loopback"
)

// watched is a relay and what its metrics say.
type watched struct {
	*relayed
	t       *testing.T
	metrics *admin.Metrics
}

func startWatched(t *testing.T, upstream string, sets ...string) *watched {
	t.Helper()
	m := admin.NewMetrics(admin.ReadBuild("test"))
	w := &watched{startRelayWith(t, relay.Options{Upstream: m, Downstream: m}, upstream, sets...), t, m}
	m.Attach(w)
	return w
}

// says reports whether the metrics have some series.
func (w *watched) says(series ...string) error {
	body := adminPage(w.t, w.Relay, w.metrics, "/metrics")
	for _, s := range series {
		if !strings.Contains(body, "\nxds_relay_"+s+"\n") {
			return fmt.Errorf("the metrics do not say %s", s)
		}
	}
	return nil
}

func state(address, is string) []string {
	return []string{fmt.Sprintf(`upstream_groups{state=%q} 1`, is), fmt.Sprintf(`upstream_state{address=%q,group="default",state=%q} 1`, address, is)}
}

func (w *watched) becomes(up int, series ...string) {
	w.t.Helper()
	eventually(w.t, patience, func() error { return w.says(append(series, fmt.Sprint("upstream_up ", up))...) })
}

// TestUpstreamUp: one metric says whether clients are kept current: not while they wait for a
// control plane that was never reached, that is lost, that refuses or that is silent, and
// whatever happens while nobody subscribes.
func TestUpstreamUp(t *testing.T) {
	t.Parallel()
	w := newLinear(t)
	w.service("a", "127.0.0.1:1")
	cp := newControlPlane(t, w.Mux())
	r := startWatched(t, cp.addr, quickBackoff...)
	r.becomes(1, `upstream_groups{state="down"} 0`) // there is no group yet
	c := openDelta(t, r.addr, "client")
	c.Wildcard(cache.Cluster)
	r.becomes(0, state(cp.addr, "down")...) // never reached
	cp.Start()
	r.becomes(1, state(cp.addr, "current")...)
	cp.Stop()
	r.becomes(0, state(cp.addr, "down")...)
	eventually(t, patience, func() error { return c.Has(cache.Cluster, "a-cluster") })
	cp.Start()
	r.becomes(1, state(cp.addr, "current")...)
	for line, n := range map[string]int{"level=WARN": 3, "cannot reach the control plane": 2, "lost the control plane": 1, "the control plane answers": 2, "the control plane answers again": 1} {
		if len(r.log.Lines(line, cp.addr)) > n || len(r.log.Lines(line, cp.addr)) == 0 {
			t.Errorf("%d lines with %q, want %d: %q", len(r.log.Lines(line)), line, n, r.log.Lines("control plane"))
		}
	}
}

func TestUpstreamRefusesOrIsSilent(t *testing.T) {
	t.Parallel()
	quick := append([]string{"timers.dne_timeout=600ms"}, quickBackoff...)
	w := newLinear(t)
	denies := startControlPlane(t, w.Mux(), tokens("Bearer right", codes.PermissionDenied, codes.PermissionDenied))
	silent := startControlPlane(t, mute{w.Mux(), cache.Cluster})
	accepts, err := net.Listen("tcp", loopback.Reserve(t)) // and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer accepts.Close()
	for address, is := range map[string]string{denies.addr: "refused", silent.addr: "silent", accepts.Addr().String(): "waiting"} {
		r := startWatched(t, address, append(quick, "timers.unavailable_after=1s")...)
		c := openDelta(t, r.addr, "client")
		c.Wildcard(cache.Cluster)
		r.becomes(0, state(address, is)...)
		if is == "refused" {
			eventually(t, patience, func() error {
				if err := c.End(); err == nil || !strings.Contains(err.Error(), "the control plane refuses the relay: a token is needed") {
					return fmt.Errorf("the client is told %v", err)
				}
				return nil
			})
		}
	}
}

// TestFailoverIsToldOnce: that another control plane of the list is put to use, and that the
// preferred one is back, is one line each, whatever the number of groups.
func TestFailoverIsToldOnce(t *testing.T) {
	t.Parallel()
	const groups = 20
	wa, wb := newLinear(t), newLinear(t)
	wa.service("a", "127.0.0.1:1")
	wb.service("a", "127.0.0.1:1")
	a, b := startControlPlane(t, wa.Mux()), startControlPlane(t, wb.Mux())
	r := startWatched(t, a.addr, append(quickBackoff, "groups.key=[id]", "timers.unavailable_after=1s", "upstream.failover_after=1s", "upstream.failback_after=1s", fmt.Sprintf(`upstream.fallbacks=[{"address":%q}]`, b.addr))...)
	var clients []*deltaClient
	for i := range groups {
		c := openDelta(t, r.addr, fmt.Sprint("client-", i))
		c.Wildcard(cache.Cluster)
		clients = append(clients, c)
	}
	all := func(address, is string) error {
		if got := strings.Count(adminPage(t, r.Relay, r.metrics, "/groups"), fmt.Sprintf(`"address": %q,
          "in_use": true,
          "state": %q`, address, is)); got != groups {
			return fmt.Errorf("%d of %d groups have %s in use, %s", got, groups, address, is)
		}
		return nil
	}
	once := func(parts ...string) {
		t.Helper()
		if lines := r.log.Lines(parts...); len(lines) != 1 {
			t.Errorf("%d lines with %q, want one: %q", len(lines), parts, lines)
		}
	}
	eventually(t, patience, func() error { return all(a.addr, "current") })
	for _, c := range clients {
		eventually(t, patience, func() error { return c.Has(cache.Cluster, "a-cluster") })
	}
	a.Stop()
	eventually(t, patience, func() error { return all(b.addr, "current") })
	r.becomes(1, fmt.Sprintf(`upstream_groups{state="current"} %d`, groups))
	once("level=WARN", "lost the control plane", "address="+a.addr)
	once("level=WARN", "the next one of the list is used", "address="+b.addr, "instead_of="+a.addr)
	once("level=INFO", "the control plane answers", "address="+b.addr)
	a.Start()
	eventually(t, patience, func() error { return all(a.addr, "current") })
	once("level=WARN", "a preferred control plane answers again and is used", "address="+a.addr, "instead_of="+b.addr)
}
