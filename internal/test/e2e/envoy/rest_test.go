package envoy

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/admin"
	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// byREST makes resources that refer to others through the source of the bootstrap, to be polled so often.
func byREST(every time.Duration) maker {
	return maker{&core.ConfigSource{
		ResourceApiVersion:  core.ApiVersion_V3,
		InitialFetchTimeout: durationpb.New(never),
		ConfigSourceSpecifier: &core.ConfigSource_ApiConfigSource{ApiConfigSource: &core.ApiConfigSource{
			ApiType: core.ApiConfigSource_REST, TransportApiVersion: core.ApiVersion_V3,
			ClusterNames: []string{"xds-source"}, RefreshDelay: durationpb.New(every), RequestTimeout: durationpb.New(70 * time.Second),
		}},
	}}
}

// polls counts what the relay has answered to clients that poll, as its metrics say, as "CDS 200".
func (r *relayed) polls() map[string]int {
	r.t.Helper()
	page := httptest.NewRecorder()
	h := admin.NewHandler(r.now, r.metrics, admin.HandlerOptions{Log: slog.New(slog.DiscardHandler)})
	h.ServeHTTP(page, httptest.NewRequest(http.MethodGet, "http://localhost/metrics", nil))
	all := make(map[string]int)
	for line := range strings.Lines(page.Body.String()) {
		var code, short string
		labels, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if rest, ok := strings.CutPrefix(labels, `xds_relay_client_polls_total{code="`); ok {
			code, short, _ = strings.Cut(rest, `",type="`)
			if n, _ := strconv.Atoi(value); n > 0 {
				all[strings.Trim(short, `"`)+" "+code] = n
			}
		}
	}
	return all
}

// serveREST has a relay serve clients that poll, and returns where.
func (r *relayed) serveREST() string {
	r.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		err = r.now.ServeREST(l)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return l.Addr().String()
}

// TestREST: an Envoy that polls for all of it is ready after two polls of each type at most, gets changes with its next
// poll, or at once if the relay holds the answers, and at rest sees no failure.
func TestREST(t *testing.T) {
	for _, c := range []struct {
		http1 bool
		hold  time.Duration
	}{{false, 0}, {true, 0}, {false, time.Minute}} {
		t.Run(fmt.Sprintf("http1=%v, hold=%v", c.http1, c.hold), func(t *testing.T) {
			realenvoy.Need(t)
			// Envoy polls after refresh_delay, and at random up to as much again.
			const every = 400 * time.Millisecond
			m, id, next := byREST(every), newIdentity(t, 1), newIdentity(t, 2)
			has := m.service("a", realenvoy.Backend(t, "first"))
			has.put(cache.Listener, "tls", m.secured("tls", "web", "id"))
			has.put(cache.Secret, "id", id.secret("id"))
			p := newPlane(t, has).Start()
			r := startRelay(t, "relay", p.addr, "downstream.rest.hold="+c.hold.String())
			source := realenvoy.Source{Target: r.serveREST(), REST: every, HTTP1: c.http1}
			e := realenvoy.Start(t, realenvoy.PerType(realenvoy.Node{ID: "poller", Cluster: "e2e"}, source), realenvoy.Options{Name: "poller"})
			e.WaitReady(patience)
			web, secured := listens(t, e, "web"), listens(t, e, "tls")
			peer.Eventually(t, patience, func() error { return answers(web, "first") })
			peer.Eventually(t, patience, func() error { return id.presentedAt(secured) })
			t.Logf("when it was ready: %v", r.polls())
			for _, short := range []string{"LDS", "CDS", "RDS", "EDS", "SDS"} {
				all := r.polls()
				if all[short+" 503"] > 1 || all[short+" 200"] == 0 {
					t.Errorf("%s: it was polled for in vain more than once, or never: %v", short, all)
				}
			}

			peer.Wait(time.Duration(often(600, 3)) * time.Second)
			if n, err := e.Sum("update_failure", "update_rejected"); err != nil || n > 0 {
				t.Errorf("%d updates failed: %v", n, err)
			}
			for _, of := range r.now.Clients() {
				if of.Protocol != "rest" || of.Node != "poller" || string(of.Sync) != "synced" {
					t.Errorf("it is shown as %+v", of)
				}
			}

			limit := 2*every + 50*time.Millisecond
			if c.hold > 0 {
				limit = 50 * time.Millisecond
			}
			for i := range 5 {
				peer.Wait(2 * every) // so that it polls again
				backend := realenvoy.Backend(t, fmt.Sprint("other ", i))
				begin := time.Now()
				p.Change(func(has world) { has.put(cache.Endpoint, "a", endpoints("a", backend)) })
				peer.Eventually(t, patience, func() error { return answers(web, fmt.Sprint("other ", i)) })
				took := time.Since(begin)
				t.Logf("a change took %v of %v", took, limit)
				if busy := 300 * time.Millisecond; took > limit+busy {
					t.Errorf("a change took %v, more than %v", took, limit)
				}
			}
			p.Change(func(has world) { has.put(cache.Secret, "id", next.secret("id")) })
			peer.Eventually(t, patience, func() error { return next.presentedAt(secured) })
			p.Change(func(has world) { has.put(cache.Route, "web", routes("web", saying("by RDS"))) })
			peer.Eventually(t, patience, func() error { return answers(web, "by RDS") })
			p.Change(func(has world) { has.drop(cache.Listener, "tls") })
			peer.Eventually(t, patience, func() error {
				if _, err := e.Address("tls"); err == nil {
					return fmt.Errorf("the listener is still there")
				}
				return nil
			})
			if n, err := e.Sum("update_failure", "update_rejected"); err != nil || n > 0 {
				t.Errorf("%d updates failed: %v", n, err)
			}
			t.Logf("in the end: %v", r.polls())
		})
	}
}
