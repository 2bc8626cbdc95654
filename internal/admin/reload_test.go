package admin

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestReloadEndpoint: POST reloads and says what came of it; GET is told the verb; the
// metrics are there from the start, and a refusal leaves the time of the last success.
func TestReloadEndpoint(t *testing.T) {
	m := NewMetrics(Build{})
	m.ConfigReloaded(true, time.Unix(1000, 500_000_000))
	var err error
	h := NewHandler(newDescribed(), m, HandlerOptions{Host: "127.0.0.1", Log: slog.New(slog.DiscardHandler), Reload: func() (string, error) {
		m.ConfigReloaded(err == nil, time.Unix(2000, 0))
		return "nothing has changed\n", err
	}})
	ask := func(method, path string) (int, string) {
		w := httptest.NewRecorder()
		req := httptest.NewRequest(method, "http://127.0.0.1"+path, nil)
		h.ServeHTTP(w, req)
		return w.Code, w.Body.String()
	}
	metrics := func(want ...string) {
		t.Helper()
		_, body := ask(http.MethodGet, "/metrics")
		for _, line := range want {
			if !strings.Contains(body, "\nxds_relay_config_last_reload_"+line+"\n") {
				t.Errorf("the metrics lack %s", line)
			}
		}
	}
	metrics("successful 1", "success_timestamp_seconds 1000.5")
	if code, body := ask(http.MethodGet, "/-/reload"); code != http.StatusMethodNotAllowed || !strings.Contains(body, "POST") {
		t.Errorf("GET: %d %q", code, body)
	}
	metrics("success_timestamp_seconds 1000.5")
	err = errors.New("relay.yaml:1:1: no")
	if code, body := ask(http.MethodPost, "/-/reload"); code != http.StatusBadRequest || body != "relay.yaml:1:1: no\n" {
		t.Errorf("a broken one: %d %q", code, body)
	}
	metrics("successful 0", "success_timestamp_seconds 1000.5")
	err = nil
	if code, body := ask(http.MethodPost, "/-/reload"); code != http.StatusOK || body != "nothing has changed\n" {
		t.Errorf("a good one: %d %q", code, body)
	}
	metrics("successful 1", "success_timestamp_seconds 2000")
}

// relisted is a relay whose list of control planes changes.
type relisted struct {
	described
	list []string
}

func (r *relisted) ControlPlanes() []string { return r.list }

// TestReloadedEntriesFromTheStart: the series of a control plane that a reload has named are
// there before its first event, too.
func TestReloadedEntriesFromTheStart(t *testing.T) {
	m, r := NewMetrics(Build{}), &relisted{newDescribed(), []string{"a:1"}}
	m.Attach(r)
	r.list = []string{"new:1"}
	m.ConfigReloaded(true, time.Unix(1000, 0))
	w := httptest.NewRecorder()
	NewProbes(r, m).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://127.0.0.1/metrics", nil))
	for _, line := range []string{`upstream_connections{address="new:1"} 0`, `upstream_checks_total{address="new:1",result="silent"} 0`, `upstream_active{address="new:1",mode="delta"} 0`} {
		if !strings.Contains(w.Body.String(), "\nxds_relay_"+line+"\n") {
			t.Errorf("the metrics lack %s", line)
		}
	}
}
