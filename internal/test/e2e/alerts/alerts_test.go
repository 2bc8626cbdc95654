// Package alerts plays series to the alerts of deploy/prometheus/rules.yaml, with
// Prometheus' own engine, and looks which of them fire. It is for tests only, and a module of
// its own, so that nothing else depends on Prometheus.
//
// It owns no metric and no rule. Limitation: that the metrics exist is tested where they are
// made (internal/admin).
package alerts

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"go.yaml.in/yaml/v3"
)

type rule struct {
	Alert       string
	Expr        string
	For         time.Duration
	Labels      map[string]string
	Annotations map[string]string
}

func load(t *testing.T) (all []rule) {
	t.Helper()
	data, err := os.ReadFile("../../../../deploy/prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct{ Rules []rule }
	}
	if err := yaml.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// fired are the alerts that fire at a time after the series began, with their severity.
func fired(t *testing.T, all []rule, series string, at time.Duration) map[string]string {
	t.Helper()
	storage := promqltest.LoadedStorage(t, "load 1m\n"+series)
	defer storage.Close()
	engine := promqltest.NewTestEngine(t, false, 0, 1_000_000)
	query := rules.EngineQueryFunc(engine, storage)
	firing := make(map[string]string)
	for _, r := range all {
		expr, err := parser.ParseExpr(r.Expr)
		if err != nil {
			t.Fatalf("%s: %v", r.Alert, err)
		}
		a := rules.NewAlertingRule(r.Alert, expr, r.For, 0, labels.FromMap(r.Labels), labels.FromMap(r.Annotations), labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler))
		begin := time.Unix(0, 0)
		for now := begin; !now.After(begin.Add(at)); now = now.Add(time.Minute) {
			if _, err := a.Eval(context.Background(), 0, now, query, &url.URL{}, 0); err != nil {
				t.Fatalf("%s: %v", r.Alert, err)
			}
		}
		for _, active := range a.ActiveAlerts() {
			if active.State == rules.StateFiring {
				firing[r.Alert+"/"+r.Labels["severity"]] = active.Annotations.Get("description")
			}
		}
	}
	return firing
}

const calm = `
  xds_relay_upstream_up{instance="r"} 1x120
  xds_relay_ready{instance="r"} 1x120
  xds_relay_upstream_stale_seconds{instance="r"} 0x120
  xds_relay_requests_total{instance="r",type="CDS",kind="ack"} 0+600x120
  xds_relay_requests_total{instance="r",type="CDS",kind="nack"} 0+1x120
  xds_relay_responses_total{instance="r",type="CDS"} 0+600x120
  xds_relay_client_sync_state{instance="r",state="synced"} 200x120
  xds_relay_client_sync_state{instance="r",state="unacked"} 800x120
  xds_relay_client_sync_state{instance="r",state="nacked"} 0x120
  xds_relay_laggards{instance="r",over="5s"} 20x120
  xds_relay_laggards{instance="r",over="30s"} 5x120
  xds_relay_laggards{instance="r",over="5m"} 1x120
  xds_relay_clients{instance="r",protocol="delta"} 1000x120
  xds_relay_client_connects_total{instance="r",protocol="delta"} 0+30x120
  xds_relay_client_disconnects_total{instance="r",reason="too_many"} 0x120
  xds_relay_client_disconnects_total{instance="r",reason="displaced_group"} 0x120
  xds_relay_memory_pressure{instance="r"} 0x120
  xds_relay_client_connections_closed_total{instance="r",reason="too_many"} 0x120
  xds_relay_client_connections_closed_total{instance="r",reason="handshake_timeout"} 0+60x120
  xds_relay_client_disconnects_total{instance="r",reason="closed"} 0+30x120
  xds_relay_client_refused_types{instance="r",type="SDS",reason="forbidden",told="errors"} 0x120
  xds_relay_client_stalls_total{instance="r"} 0x120
  xds_relay_client_panics_total{instance="r"} 0x120
  xds_relay_ack_seconds_bucket{instance="r",type="CDS",le="1"} 0+600x120
  xds_relay_ack_seconds_bucket{instance="r",type="CDS",le="10"} 0+600x120
  xds_relay_ack_seconds_bucket{instance="r",type="CDS",le="+Inf"} 0+600x120
  xds_relay_convergence_seconds_bucket{instance="r",type="CDS",le="1"} 0+60x120
  xds_relay_convergence_seconds_bucket{instance="r",type="CDS",le="10"} 0+60x120
  xds_relay_convergence_seconds_bucket{instance="r",type="CDS",le="+Inf"} 0+60x120
  xds_relay_convergence_seconds_bucket{instance="r",type="EDS",le="1"} 0+6000x120
  xds_relay_convergence_seconds_bucket{instance="r",type="EDS",le="10"} 0+6000x120
  xds_relay_convergence_seconds_bucket{instance="r",type="EDS",le="+Inf"} 0+6000x120
  xds_relay_certificate_expiry_timestamp_seconds{instance="r",hop="downstream",file="cert"} 700000x120
  xds_relay_certificate_last_reload_successful{instance="r",hop="downstream",file="cert"} 1x120
  xds_relay_config_last_reload_successful{instance="r"} 1x120
  xds_relay_authz_rules_last_reload_successful{instance="r"} 1x120
  xds_relay_handshake_failures_total{instance="r",hop="downstream",reason="unknown_ca"} 0+1x120
  xds_relay_cache_removals_held{instance="r",type="CDS"} 0x120
  xds_relay_snapshot_errors_total{instance="r",operation="write"} 0x120
  process_resident_memory_bytes{instance="r",job="xds-relay"} 500x120
  go_gc_gomemlimit_bytes{instance="r",job="xds-relay"} 1000x120
  process_start_time_seconds{instance="r",job="xds-relay"} 1x120
`

// with is calm with other series in the place of some: each begins as the one that it
// replaces.
func with(series ...string) string {
	lines := strings.Split(strings.TrimSpace(calm), "\n")
	for _, s := range series {
		name, _, _ := strings.Cut(s, "} ")
		i := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), name+"}") })
		if i < 0 {
			panic("there is no series " + name)
		}
		lines[i] = "  " + s
	}
	return strings.Join(lines, "\n") + "\n"
}

// TestAlerts: each alert fires on what it is about, and only that one, after the time it
// waits, and is silent before and when all is well.
func TestAlerts(t *testing.T) {
	all := load(t)
	if got := fired(t, all, with(), 2*time.Hour); len(got) > 0 {
		t.Errorf("all is well, and there fires %v", got)
	}
	const (
		up     = `xds_relay_upstream_up{instance="r"} `
		expiry = `xds_relay_certificate_expiry_timestamp_seconds{instance="r",hop="downstream",file="cert"} `
		w      = "/warning"
		c      = "/critical"
	)
	seen := make(map[string]bool)
	for _, tt := range []struct {
		series []string
		at     time.Duration
		want   []string
	}{
		{[]string{up + "1x9 0x110"}, 14 * time.Minute, nil},
		{[]string{up + "1x9 0x110"}, 16 * time.Minute, []string{"XdsRelayUpstreamDown" + w}},
		{[]string{up + "1x9 0x110"}, 41 * time.Minute, []string{"XdsRelayUpstreamDown" + w, "XdsRelayUpstreamDown" + c}},
		{[]string{up + "1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1"}, 20 * time.Minute, nil}, // reconnects
		{[]string{`xds_relay_upstream_stale_seconds{instance="r"} 0+60x120`}, 15 * time.Minute, nil},
		{[]string{`xds_relay_upstream_stale_seconds{instance="r"} 0+60x120`}, 20 * time.Minute, []string{"XdsRelayCacheStale" + w}},
		{[]string{`xds_relay_requests_total{instance="r",type="CDS",kind="nack"} 0+30x120`}, 5 * time.Minute, nil},
		{[]string{`xds_relay_requests_total{instance="r",type="CDS",kind="nack"} 0+30x120`}, 30 * time.Minute, []string{"XdsRelayNackRatioHigh" + w}},
		// Of those that change all the time, many owe an ACK at any moment; what counts is for how long.
		{[]string{`xds_relay_client_sync_state{instance="r",state="unacked"} 1000x120`}, time.Hour, nil},
		{[]string{`xds_relay_laggards{instance="r",over="30s"} 20x120`}, 9 * time.Minute, nil},
		{[]string{`xds_relay_laggards{instance="r",over="30s"} 20x120`}, 11 * time.Minute, []string{"XdsRelayClientsStale" + w}},
		{[]string{`xds_relay_laggards{instance="r",over="30s"} 20x5 2x3 20x5 2x100`}, time.Hour, nil},
		// One Envoy of 1,000 has rejected one push; one that another push has mended; all have rejected one.
		{[]string{`xds_relay_client_sync_state{instance="r",state="nacked"} 0x9 1x110`}, 24 * time.Minute, nil},
		{[]string{`xds_relay_client_sync_state{instance="r",state="nacked"} 0x9 1x110`}, 25 * time.Minute, []string{"XdsRelayClientsNacked" + w}},
		{[]string{`xds_relay_client_sync_state{instance="r",state="nacked"} 0x9 1x9 0x100`}, 40 * time.Minute, nil},
		{[]string{
			`xds_relay_client_sync_state{instance="r",state="synced"} 999x9 0x110`,
			`xds_relay_laggards{instance="r",over="30s"} 5x9 999x110`,
			`xds_relay_client_sync_state{instance="r",state="nacked"} 0x9 999x110`,
			`xds_relay_requests_total{instance="r",type="CDS",kind="nack"} 0x9 999x110`,
		}, time.Hour, []string{"XdsRelayClientsStale" + w, "XdsRelayClientsNacked" + w}},
		{[]string{`xds_relay_client_stalls_total{instance="r"} 0+1x120`}, 30 * time.Minute, []string{"XdsRelaySlowConsumers" + w}},
		{[]string{`xds_relay_ack_seconds_bucket{instance="r",type="CDS",le="1"} 0+500x120`}, 30 * time.Minute, []string{"XdsRelayAckSlow" + w}},
		// Of one type, which changes much less often than another one; and changes that never reach some client.
		{[]string{`xds_relay_convergence_seconds_bucket{instance="r",type="CDS",le="1"} 0+50x120`}, 10 * time.Minute, nil},
		{[]string{`xds_relay_convergence_seconds_bucket{instance="r",type="CDS",le="1"} 0+50x120`}, 30 * time.Minute, []string{"XdsRelayConvergenceSlow" + w}},
		{[]string{`xds_relay_convergence_seconds_bucket{instance="r",type="CDS",le="+Inf"} 0+66x120`}, 30 * time.Minute, []string{"XdsRelayConvergenceSlow" + w}},
		{[]string{expiry + "300000x1500"}, time.Hour, nil}, // one that is replaced every day
		{[]string{expiry + "300000x1500"}, 25 * time.Hour, []string{"XdsRelayCertExpiring" + w}},
		{[]string{expiry + "100000x1500"}, 25 * time.Hour, []string{"XdsRelayCertExpiring" + w, "XdsRelayCertExpiring" + c}},
		{[]string{expiry + "3600x120"}, 80 * time.Minute, []string{"XdsRelayCertExpiring" + c}},                                                // it has expired
		{[]string{`xds_relay_certificate_last_reload_successful{instance="r",hop="downstream",file="cert"} 1x9 0x110`}, 14 * time.Minute, nil}, // a pair that is half written
		{[]string{`xds_relay_certificate_last_reload_successful{instance="r",hop="downstream",file="cert"} 1x9 0x110`}, 21 * time.Minute, []string{"XdsRelayCertReloadFailed" + w}},
		{[]string{`xds_relay_authz_rules_last_reload_successful{instance="r"} 1x9 0x110`}, 14 * time.Minute, nil},
		{[]string{`xds_relay_authz_rules_last_reload_successful{instance="r"} 1x9 0x110`}, 21 * time.Minute, []string{"XdsRelayRulesReloadFailed" + w}},
		{[]string{`xds_relay_config_last_reload_successful{instance="r"} 1x9 0x110`}, 14 * time.Minute, nil},
		{[]string{`xds_relay_config_last_reload_successful{instance="r"} 1x9 0x110`}, 21 * time.Minute, []string{"XdsRelayConfigReloadFailed" + w}},
		{[]string{`xds_relay_handshake_failures_total{instance="r",hop="downstream",reason="unknown_ca"} 0+6x120`}, 14 * time.Minute, nil},
		{[]string{`xds_relay_handshake_failures_total{instance="r",hop="downstream",reason="unknown_ca"} 0+6x120`}, 30 * time.Minute, []string{"XdsRelayHandshakeFailures" + w}},
		{[]string{`xds_relay_client_connects_total{instance="r",protocol="delta"} 0+60x120`}, 9 * time.Minute, nil},
		{[]string{`xds_relay_client_connects_total{instance="r",protocol="delta"} 0+60x120`}, 30 * time.Minute, []string{"XdsRelayReconnectStorm" + w}},
		{[]string{`xds_relay_cache_removals_held{instance="r",type="CDS"} 0x9 3x110`}, 9 * time.Minute, nil},
		{[]string{`xds_relay_cache_removals_held{instance="r",type="CDS"} 0x9 3x110`}, 10 * time.Minute, []string{"XdsRelayMassRemovalHeld" + c}},
		{[]string{`process_resident_memory_bytes{instance="r",job="xds-relay"} 950x120`}, 15 * time.Minute, []string{"XdsRelayMemoryNearLimit" + w}},
		{[]string{`xds_relay_snapshot_errors_total{instance="r",operation="write"} 0+1x120`}, 20 * time.Minute, []string{"XdsRelaySnapshotFailing" + w}},
		{[]string{`xds_relay_client_disconnects_total{instance="r",reason="too_many"} 0+60x120`}, 20 * time.Minute, []string{"XdsRelayClientsRefused" + w}},
		{[]string{`xds_relay_client_connections_closed_total{instance="r",reason="too_many"} 0x9 0+3x110`}, 14 * time.Minute, nil},
		{[]string{`xds_relay_client_connections_closed_total{instance="r",reason="too_many"} 0x9 0+3x110`}, 20 * time.Minute, []string{"XdsRelayTooManyConnections" + w}},
		{[]string{`xds_relay_client_disconnects_total{instance="r",reason="displaced_group"} 0x9 0+3x110`}, 14 * time.Minute, nil},
		{[]string{`xds_relay_client_disconnects_total{instance="r",reason="displaced_group"} 0x9 0+3x110`}, 20 * time.Minute, []string{"XdsRelayFull" + w}},
		{[]string{`xds_relay_memory_pressure{instance="r"} 0x9 1x110`}, 11 * time.Minute, nil},
		{[]string{`xds_relay_memory_pressure{instance="r"} 0x9 1x110`}, 12 * time.Minute, []string{"XdsRelayMemoryShort" + c}},
		{[]string{`xds_relay_client_refused_types{instance="r",type="SDS",reason="forbidden",told="errors"} 1x120`}, 9 * time.Minute, nil},
		{[]string{`xds_relay_client_refused_types{instance="r",type="SDS",reason="forbidden",told="errors"} 1x120`}, 10 * time.Minute, []string{"XdsRelayTypesRefused" + w}},
		{[]string{`process_start_time_seconds{instance="r",job="xds-relay"} 1+1x120`}, 10 * time.Minute, []string{"XdsRelayRestarting" + w}},
		{[]string{`xds_relay_ready{instance="r"} 0x120`}, 11 * time.Minute, []string{"XdsRelayNotReady" + w}},
		{[]string{`xds_relay_client_panics_total{instance="r"} 0x9 1x110`}, 12 * time.Minute, []string{"XdsRelayBug" + c}},
	} {
		got := fired(t, all, with(tt.series...), tt.at)
		names := slices.Sorted(maps.Keys(got))
		slices.Sort(tt.want)
		if !slices.Equal(names, tt.want) {
			t.Errorf("with %q, after %v: %q fire, want %q", tt.series, tt.at, names, tt.want)
		}
		for name, description := range got {
			seen[name] = true
			if !strings.Contains(description, "r") || strings.Contains(description, "<no value>") || strings.Contains(description, "error") || strings.Contains(description, " )") {
				t.Errorf("%s says %q", name, description)
			}
		}
	}
	for _, r := range all {
		if name := fmt.Sprint(r.Alert, "/", r.Labels["severity"]); !seen[name] {
			t.Errorf("nothing makes %s fire", name)
		}
	}
}
