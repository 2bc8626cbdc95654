package admin

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestOperate: what acts on one client says so in the log, takes POST from this origin only, sends a person back to the
// view from which the form was sent, and nowhere else.
func TestOperate(t *testing.T) {
	r := newDescribed()
	var log strings.Builder
	h := NewHandler(r, NewMetrics(Build{}), HandlerOptions{Host: "127.0.0.1", Log: slog.New(slog.NewTextHandler(&log, nil))})
	for _, c := range []struct {
		method, path string
		headers      map[string]string
		code         int
		says, to     string
	}{
		{"POST", "/clients/2/resync", nil, 200, `"node": "node-2"`, ""},
		{"POST", "/clients/2/disconnect", nil, 200, `"stream": 2`, ""},
		{"POST", "/clients/99/resync", nil, 404, "there is no stream 99", ""},
		{"POST", "/clients/x/disconnect", nil, 400, "is no stream", ""},
		{"POST", "/clients/2/disconnect?for=1s", nil, 400, "unknown parameter", ""},
		{"GET", "/clients/2/resync", nil, 405, "POST", ""},
		{"POST", "/clients/2/resync", map[string]string{"Accept": "text/html", "Referer": "http://127.0.0.1/ui/clients/2?names=all"}, 303, "", "/ui/clients/2?names=all"},
		{"POST", "/clients/2/resync", map[string]string{"Accept": "text/html", "Referer": "http://evil.example/ui/clients/2"}, 303, "", "/"},
		{"POST", "/clients/2/resync", map[string]string{"Accept": "text/html"}, 303, "", "/"},
		{"POST", "/clients/99/resync", map[string]string{"Accept": "text/html"}, 303, "", "/ui/clients/99"},
		{"POST", "/guard/release", map[string]string{"Accept": "text/html", "Referer": "http://127.0.0.1/"}, 303, "", "/"},
		{"POST", "/clients/2/resync", map[string]string{"Sec-Fetch-Site": "cross-site"}, 403, "", ""},
		{"POST", "/clients/2/disconnect", map[string]string{"Origin": "http://evil.example"}, 403, "", ""},
		{"POST", "/guard/release", map[string]string{"Sec-Fetch-Site": "same-site"}, 403, "", ""},
	} {
		log.Reset()
		req := httptest.NewRequest(c.method, c.path, nil)
		req.Host = "127.0.0.1"
		for name, value := range c.headers {
			req.Header.Set(name, value)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.says) || w.Header().Get("Location") != c.to {
			t.Errorf("%s %s %v: %d, to %q: %s", c.method, c.path, c.headers, w.Code, w.Header().Get("Location"), w.Body)
		}
		if acted := w.Code < 400 && strings.HasPrefix(c.path, "/clients/2"); acted != strings.Contains(log.String(), "node=node-2") {
			t.Errorf("%s %s: the log says %q", c.method, c.path, log.String())
		}
		if c.code == http.StatusForbidden && log.Len() > 0 {
			t.Errorf("%s %v acts: %s", c.path, c.headers, log.String())
		}
	}
}
