package admin

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestLogLevel: GET shows the level, POST changes it, and nothing else does.
func TestLogLevel(t *testing.T) {
	level := new(slog.LevelVar)
	var log bytes.Buffer
	h := NewHandler(newDescribed(), NewMetrics(ReadBuild("test")), HandlerOptions{
		Host: "localhost", Level: level, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: level})),
	})
	for _, tt := range []struct {
		method, path string
		code         int
		says         string
		level        slog.Level
	}{
		{"GET", "/logging", 200, `"level": "info"`, slog.LevelInfo},
		{"GET", "/logging?level=debug", 200, `"level": "info"`, slog.LevelInfo},
		{"POST", "/logging?level=debug", 200, `"level": "debug"`, slog.LevelDebug},
		{"POST", "/logging?level=loud", 400, `level is "loud"; use debug, info, warn or error`, slog.LevelDebug},
		{"POST", "/logging", 400, `level is ""; use`, slog.LevelDebug},
		{"PUT", "/logging?level=info", 405, "POST", slog.LevelDebug},
		{"DELETE", "/logging", 405, "POST", slog.LevelDebug},
		{"POST", "/logging?level=error", 200, `"level": "error"`, slog.LevelError},
	} {
		req := httptest.NewRequest(tt.method, tt.path, nil)
		req.Host = "localhost"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.says) || level.Level() != tt.level {
			t.Errorf("%s %s: %d %q, and the level is %v", tt.method, tt.path, w.Code, w.Body.String(), level)
		}
		if allow := w.Header().Get("Allow"); w.Code == http.StatusMethodNotAllowed && allow != "GET, HEAD, POST" {
			t.Errorf("%s is refused with Allow: %s", tt.method, allow)
		}
	}
	if n := strings.Count(log.String(), "an operator changes the log level"); n != 2 {
		t.Errorf("%d changes are logged, of 2:\n%s", n, log.String())
	}
	w := httptest.NewRecorder()
	req := httptest.NewRequest("POST", "/logging?level=debug", nil)
	req.Host = "localhost"
	if NewHandler(newDescribed(), NewMetrics(ReadBuild("test")), HandlerOptions{Host: "localhost", Log: slog.New(slog.DiscardHandler)}).ServeHTTP(w, req); w.Code != 404 && w.Code != 405 {
		t.Errorf("without a level to change: %d", w.Code)
	}
}
