package admin

import (
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/certs"
	"github.com/xds-relay/xds-relay/upstream"
	upsession "github.com/xds-relay/xds-relay/upstream/session"
)

// scrape is what Prometheus gets, one series a line.
func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	req := httptest.NewRequest("GET", "/metrics", nil)
	req.Host = "localhost"
	w := httptest.NewRecorder()
	NewHandler(newDescribed(), m, HandlerOptions{Host: "localhost", Log: slog.New(slog.DiscardHandler)}).ServeHTTP(w, req)
	return w.Body.String()
}

// TestMetricsTellWhatHappened: dashboards and alerts are written against these
// names and labels.
func TestMetricsTellWhatHappened(t *testing.T) {
	m := NewMetrics(Build{Version: "v1", Revision: "abc", Go: "go1", Protos: "v2"})
	m.Attach(newDescribed())

	m.UpstreamConnected(upstream.Stream{Role: upsession.Main, Entry: "a:1"}, true)
	m.UpstreamConnected(upstream.Stream{Role: upsession.Auxiliary, Entry: "a:1"}, true)
	m.UpstreamConnected(upstream.Stream{Role: upsession.Auxiliary, Entry: "a:1"}, false)
	m.UpstreamConnection("a:1", true)
	m.UpstreamConnection("a:1", true)
	m.UpstreamConnection("a:1", false)
	m.UpstreamCheck("a:1", upsession.Silent)
	m.UpstreamResponse(cache.Cluster, 3, 2)
	m.UpstreamNack(cache.Cluster)
	m.UpstreamDropped("unsubscribed_type")
	m.UpstreamUnasked(cache.Listener, 3)
	m.UpstreamLeftOut(cache.Endpoint, 4)
	m.UpstreamQuarantine(cache.Runtime, true)
	m.UpstreamQuarantine(cache.Secret, true)
	m.UpstreamQuarantine(cache.Runtime, false)
	m.ResourcesExpired(cache.Cluster, 2)
	m.UpstreamReconnect(upsession.Auxiliary, "unavailable", 1500*time.Millisecond)
	m.ClientConnectionClosed(downstream.ClosedTooMany)
	m.ClientConnected("delta")
	m.ClientDisconnected("delta", session.OverLimit)
	m.ClientRequest(cache.Endpoint, session.NackRequest)
	m.ClientResponse(cache.Endpoint, 5, 1, 700)
	m.ClientAck(cache.Endpoint, 3*time.Millisecond)
	m.ClientPropagation(cache.Endpoint, 2*time.Millisecond, "")
	m.ClientPanic()
	m.CertificatesReloaded(true)
	m.FilesLoaded("/a", true)
	m.FilesLoaded("/a", false)
	m.FilesLoaded("/b", true)
	m.RulesReloaded(true)
	m.RulesReloaded(false)
	m.HandshakeFailed(certs.Downstream, certs.HandshakeExpired)

	body := scrape(t, m)
	for _, want := range []string{
		`build_info{goversion="go1",protos="v2",revision="abc",version="v1"} 1`,
		`upstream_connected 1`,
		`propagation_seconds_count{type="EDS"} 1`,
		`upstream_streams{role="main"} 1`,
		`upstream_streams{role="aux"} 0`,
		`upstream_connections{address="a:1"} 1`,
		`upstream_checks_total{address="a:1",result="silent"} 1`,
		`upstream_backoff_seconds 1.5`,
		`upstream_reconnects_total{reason="unavailable"} 1`,
		`upstream_responses_total{type="CDS"} 1`,
		`upstream_resources_received_total{op="added",type="CDS"} 3`,
		`upstream_resources_received_total{op="removed",type="CDS"} 2`,
		`upstream_nacks_sent_total{type="CDS"} 1`,
		`upstream_dropped_total{reason="unsubscribed_type"} 1`,
		`upstream_unasked_dropped_total{type="LDS"} 3`,
		`upstream_names_left_out_total{type="EDS"} 4`,
		`upstream_quarantined_types 1`,
		`resources_expired_total{type="CDS"} 2`,
		`client_connections 7`,
		`client_connections_limit 160`,
		`client_connections_closed_total{reason="too_many"} 1`,
		`client_connections_closed_total{reason="handshake_timeout"} 0`,
		`client_connects_total{protocol="delta"} 1`,
		`client_disconnects_total{reason="` + string(session.OverLimit) + `"} 1`,
		`client_panics_total 1`,
		`requests_total{kind="nack",type="EDS"} 1`,
		`responses_total{type="EDS"} 1`,
		`response_resources_total{op="added",type="EDS"} 5`,
		`response_resources_total{op="removed",type="EDS"} 1`,
		`response_bytes_total{type="EDS"} 700`,
		`ack_seconds_bucket{type="EDS",le="0.005"} 1`,
		`ready 0`,
		`groups 1`,
		`clients{protocol="delta"} 5`,
		`client_sync_state{state="unacked"} 0`,
		`subscriptions{kind="named",type="CDS"} 4`,
		`subscriptions{kind="wildcard",type="CDS"} 0`,
		`cache_resources{type="SDS"} 3`,
		`certificate_reloads_total{result="ok"} 1`,
		`files_loads_total{result="ok"} 2`,
		`files_loads_total{result="failed"} 1`,
		`files_last_load_successful 0`,
		`certificate_reloads_total{result="failed"} 0`,
		`authz_rules_reloads_total{result="ok"} 1`,
		`authz_rules_reloads_total{result="failed"} 1`,
		`authz_rules_last_reload_successful 0`,
		`handshake_failures_total{hop="downstream",reason="expired"} 1`,
		`handshake_failures_total{hop="upstream",reason="not_yet_valid"} 0`,
		`certificate_expiry_timestamp_seconds{address="",file="cert",hop="downstream"} 2000`,
		`certificate_expiry_timestamp_seconds{address="a:1",file="ca",hop="upstream"} 3000`,
		`certificate_last_reload_successful{address="",file="cert",hop="downstream"} 1`,
		`certificate_last_reload_successful{address="a:1",file="ca",hop="upstream"} 0`,
	} {
		if !strings.Contains(body, "\n"+prefix+want+"\n") {
			t.Errorf("%s%s is not there", prefix, want)
		}
	}
	for _, also := range []string{prefix + "upstream_last_message_timestamp_seconds 1", prefix + "cache_bytes", "\ngo_goroutines ", "\nprocess_open_fds "} {
		if !strings.Contains(body, also) {
			t.Errorf("%s is not there", also)
		}
	}

	m.UpstreamConnected(upstream.Stream{Role: upsession.Main, Entry: "a:1"}, false)
	if body := scrape(t, m); !strings.Contains(body, prefix+"upstream_connected 0") {
		t.Error("upstream_connected is not 0 after the last stream")
	}
}

// TestPropagationHasExemplars: whoever sees a slow change in a graph gets to its trace. They
// are part of OpenMetrics only.
func TestPropagationHasExemplars(t *testing.T) {
	m := NewMetrics(Build{})
	m.ClientPropagation(cache.Cluster, 40*time.Millisecond, "4bf92f3577b34da6a3ce929d0e0e4736")
	req := httptest.NewRequest("GET", "/metrics", nil)
	req.Host = "localhost"
	req.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	w := httptest.NewRecorder()
	NewHandler(newDescribed(), m, HandlerOptions{Host: "localhost", Log: slog.New(slog.DiscardHandler)}).ServeHTTP(w, req)
	if want := `xds_relay_propagation_seconds_bucket{type="CDS",le="0.05"} 1 # {trace_id="4bf92f3577b34da6a3ce929d0e0e4736"} 0.04`; !strings.Contains(w.Body.String(), want) {
		t.Errorf("/metrics lacks %s", want)
	}
}
