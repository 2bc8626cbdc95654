package admin

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/xds-relay/xds-relay/internal/health"
)

// outside is a described relay as a test wants its probes.
type outside struct {
	described
	stuck, started bool
}

func (o outside) Started() bool { return o.started }

func (o outside) Liveness() []health.Check {
	return []health.Check{{Name: "clients", OK: !o.stuck, Why: map[bool]string{true: "no sign of life for 30s"}[o.stuck]}}
}

// The listener that everybody may reach answers probes and Prometheus, under any name,
// and nothing else.
func TestProbes_AndNothingElse(t *testing.T) {
	for _, tt := range []struct {
		method, path string
		relay        outside
		code         int
		body         string
	}{
		{"GET", "/livez", outside{}, 200, "live\n"},
		{"HEAD", "/livez", outside{}, 200, ""},
		{"GET", "/livez", outside{stuck: true}, 503, "no sign of life for 30s\n"},
		{"GET", "/livez?verbose", outside{stuck: true}, 503, "[-]clients failed: no sign of life for 30s\nnot live: no sign of life for 30s\n"},
		{"GET", "/readyz", outside{}, 503, "waiting for upstream\n"},
		{"GET", "/ready", outside{stuck: true}, 503, "waiting for upstream\n"},
		{"GET", "/startupz", outside{}, 503, "waiting for upstream\n"},
		{"GET", "/startupz", outside{started: true}, 200, "started\n"}, // though not ready any more
		{"GET", "/metrics", outside{}, 200, "xds_relay_ready 0"},
		{"GET", "/stats/prometheus", outside{}, 200, "xds_relay_ready 0"},
		{"POST", "/readyz", outside{}, 405, "read with GET"},
		{"GET", "/", outside{}, 404, ""},
		{"GET", "/clients", outside{}, 404, ""},
		{"GET", "/groups", outside{}, 404, ""},
		{"GET", "/resources", outside{}, 404, ""},
		{"GET", "/server_info", outside{}, 404, ""},
		{"GET", "/debug/check", outside{}, 404, ""},
		{"POST", "/guard/release", outside{}, 404, ""},
		{"GET", "/debug/pprof/", outside{}, 404, ""},
		{"GET", "/metrics/", outside{}, 404, ""},
		{"GET", "/livez/../clients", outside{}, 307, ""}, // to /clients, which is not there
	} {
		tt.relay.described = newDescribed()
		m := NewMetrics(ReadBuild("test"))
		m.Attach(tt.relay)
		req := httptest.NewRequest(tt.method, tt.path, nil)
		req.Host = "relay.example:18002"
		w := httptest.NewRecorder()
		NewProbes(tt.relay, m).ServeHTTP(w, req)
		body := w.Body.String()
		if w.Code != tt.code || !strings.Contains(body, tt.body) {
			t.Errorf("%s %s: %d %q, want %d and %q", tt.method, tt.path, w.Code, body, tt.code, tt.body)
		}
		if strings.Contains(body, canary) {
			t.Errorf("%s shows a secret", tt.path)
		}
		if w.Code == http.StatusMethodNotAllowed && w.Header().Get("Allow") == "" {
			t.Errorf("%s %s does not say what is allowed", tt.method, tt.path)
		}
	}
}
