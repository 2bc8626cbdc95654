package main

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"
)

// well is what a relay that is well says of itself in its metrics.
var well = map[string]string{
	`xds_relay_clients{protocol="delta"}`:                      "10",
	`xds_relay_client_sync_state{state="synced"}`:              "10",
	`xds_relay_client_connections`:                             "10",
	`xds_relay_client_connections_limit`:                       "100",
	`xds_relay_clients_limit`:                                  "0",
	`xds_relay_cache_removals_held{type="CDS"}`:                "0",
	`process_open_fds`:                                         "20",
	`process_max_fds`:                                          "1024",
	`process_resident_memory_bytes`:                            "1e+08",
	`xds_relay_memory_pressure`:                                "0",
	`xds_relay_snapshot_timestamp_seconds`:                     "0",
	`xds_relay_snapshot_errors_total{operation="write"}`:       "0",
	`xds_relay_upstream_connected`:                             "1",
	`xds_relay_config_last_reload_successful`:                  "1",
	`xds_relay_authz_rules_last_reload_successful`:             "1",
	`xds_relay_certificate_last_reload_successful{hop="down"}`: "1",
}

// TestCheckRunning: each thing that can be wrong with a running relay is a line with a hint, and a failure if somebody
// must act.
func TestCheckRunning(t *testing.T) {
	in := func(d time.Duration) string { return fmt.Sprint(time.Now().Add(d).Unix()) }
	certificate := `xds_relay_certificate_expiry_timestamp_seconds{hop="upstream",address="a:1",file="cert"}`
	current := `{"groups": [{"upstream": [{"address": "a:1", "in_use": true, "state": "current", "connected_since": "2026-01-01T00:00:00Z"}]}]}`
	for _, tt := range []struct {
		name, metric, value, want string
		failed                    int
	}{
		{"all is well", "", "", "ok    clients' streams                 10, without a limit\n", 0},
		{"held removals", `xds_relay_cache_removals_held{type="CDS"}`, "7", "FAIL  removals                         the mass-removal guard holds back 7\n      hint: ", 1},
		{"a certificate that lasts", certificate, in(40*24*time.Hour + time.Minute), "ok    certificates                     upstream a:1 cert: expires in 40d\n", 0},
		{"one that expires soon", certificate, in(3*24*time.Hour + time.Minute), "note  certificates                     upstream a:1 cert: expires in 3d\n      hint: ", 0},
		{"one that expires today", certificate, in(3*time.Hour + time.Minute), "FAIL  certificates                     upstream a:1 cert: expires in 3h", 1},
		{"one that has expired", certificate, in(-time.Hour - time.Minute), "FAIL  certificates                     upstream a:1 cert: has expired 1h", 1},
		{"a file that cannot be used", `xds_relay_certificate_last_reload_successful{hop="down"}`, "0", "the file has changed and cannot be used", 1},
		{"descriptors", "process_open_fds", "1000", "FAIL  descriptors                      1,000 of 1,024\n      hint: raise LimitNOFILE", 1},
		{"connections", "xds_relay_client_connections", "91", "FAIL  clients' connections             91 of 100\n", 1},
		{"memory", "xds_relay_memory_pressure", "1", "FAIL  memory                           95.4 MiB resident; more than 90 %", 1},
		{"an old snapshot", "xds_relay_snapshot_timestamp_seconds", in(-time.Hour - time.Minute), "FAIL  snapshot                         1h1m old", 1},
		{"a fresh snapshot", "xds_relay_snapshot_timestamp_seconds", in(-35 * time.Second), "ok    snapshot                         3", 0},
		{"none can be written", `xds_relay_snapshot_errors_total{operation="write"}`, "3", "FAIL  snapshot                         none is on disk, after 3 errors", 1},
		{"a bad configuration", "xds_relay_config_last_reload_successful", "0", "FAIL  configuration                    it was read again and has a mistake", 1},
		{"bad rules", "xds_relay_authz_rules_last_reload_successful", "0", "FAIL  rules                            it was read again and has a mistake", 1},
		{"a NACK", `xds_relay_client_sync_state{state="nacked"}`, "2", "note  clients                          10 clients: 2 not in step, 2 of them REJECTED", 0},
		{"slow clients", `xds_relay_client_sync_state{state="unacked"}`, "2", "ok    clients                          10 clients: 2 not in step at the moment", 0},
		{"no control plane", "/groups", strings.Replace(current, "current", "down", 1), "FAIL  control plane                    a:1 DOWN", 1},
		{"a control plane that is asked", "/groups", strings.Replace(current, "current", "waiting", 1), "note  control plane                    a:1 WAITING", 0},
		{"no clients", "/groups", `{"groups": []}`, "note  control plane                    it was not asked for anything yet", 0},
	} {
		relay := said{
			"/server_info": always(`{"version": "v\u001b", "ready": true}`), "/livez": always("live"), "/readyz": always("ready"), "/groups": always(current),
			"/metrics": func(url.Values) (int, string) {
				text := ""
				for name, value := range well {
					if name != tt.metric {
						text += name + " " + value + "\n"
					}
				}
				if tt.metric != "" && tt.metric[0] != '/' {
					text += tt.metric + " " + tt.value + "\n"
				}
				return 200, text
			},
		}
		if strings.HasPrefix(tt.metric, "/") {
			relay[tt.metric] = always(tt.value)
		}
		var out strings.Builder
		failed, err := checkRunning(t.Context(), relay.serve(t), &out)
		if err != nil || failed != tt.failed || !strings.Contains(out.String(), tt.want) || strings.Count(out.String(), "FAIL") != failed {
			t.Errorf("%s: %d failed, %v; want %d and %q in\n%s", tt.name, failed, err, tt.failed, tt.want, out.String())
		}
		if steers.MatchString(out.String()) {
			t.Errorf("%q", out.String())
		}
	}
	sick := said{"/server_info": always("{}"), "/metrics": always(""), "/groups": always(current), "/readyz": always("ready"), "/livez": func(url.Values) (int, string) { return 503, "[-]groups failed: stuck\nnot live: stuck" }}
	var out strings.Builder
	if failed, err := checkRunning(t.Context(), sick.serve(t), &out); err != nil || failed != 1 || !strings.Contains(out.String(), "FAIL  alive                            not live: stuck\n      hint: a part of the relay") {
		t.Errorf("%d, %v: %s", failed, err, out.String())
	}
}
