package rest

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/header"
	"github.com/xds-relay/xds-relay/internal/readable"
)

// optionsFor are those for a server.
func optionsFor(t testing.TB, url string) *Options {
	t.Helper()
	messages, err := readable.Load()
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &Options{
		URL: url, Transport: transport, Poll: 5 * time.Second, Timeout: 10 * time.Second, MaxBytes: 1 << 20, Messages: messages,
		Random: func() float64 { return 0.5 },
	}
}

func serve(t *testing.T, f http.HandlerFunc) string {
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s.URL
}

var clusters = &question{typ: cache.Cluster, node: &core.Node{Id: "relay"}}

// TestRequest: a request is what Envoy's would be.
func TestRequest(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var got map[string]any
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
		if said := fmt.Sprintf("%s %s %s %v", r.Method, r.URL, r.Header.Get("Content-Type"), got); said != "POST /v3/discovery:endpoints application/json map[node:map[id:relay] resource_names:[a b] type_url:"+string(cache.Endpoint)+" version_info:7]" {
			t.Errorf("it says %s", said)
		}
		if r.Header.Get("Prefer") != "wait=30" || strings.Join(r.Header.Values("X-Own"), " ") != "one two" || r.Header.Get("X-Tenant") != "blue" {
			t.Errorf("its headers are %v", r.Header)
		}
		w.WriteHeader(http.StatusNotModified)
	})
	o := optionsFor(t, url+"/")
	o.Headers = func() ([]header.Header, error) {
		return []header.Header{{Name: "x-own", Value: "one"}, {Name: "x-own", Value: "two"}}, nil
	}
	q := &question{typ: cache.Endpoint, node: &core.Node{Id: "relay"}, names: []string{"a", "b"}, version: "7", wait: 30 * time.Second, headers: []header.Header{{Name: "x-tenant", Value: "blue"}}}
	if a, end := newClient(o).ask(t.Context(), q); end != nil || a.body != nil {
		t.Errorf("it hears %v, %v", a, end)
	}
	o.Headers = func() ([]header.Header, error) { return nil, fmt.Errorf("no such file") }
	if _, end := newClient(o).ask(t.Context(), q); end == nil || end.Reason != session.Unreachable || !strings.Contains(end.Message, "no such file") {
		t.Errorf("without headers it hears %v", end)
	}
}

// TestQuotesNoAnswer: what may be a response is not quoted, whatever it begins with, since it may hold secrets (REST-16).
func TestQuotesNoAnswer(t *testing.T) {
	for _, before := range []string{"", "\ufeff", " [", "\n[", "\ufeff\n[", `"`, ")]}'\n", "\xff\xfe"} {
		o := optionsFor(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, before+`{"resources": [{"@type": "made.Up", "name": "a", "inline_string": "hunter2"}]}`)
		}))
		if _, err := Count(t.Context(), o, cache.Secret, &core.Node{Id: "relay"}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", before, err)
		}
	}
}

// TestFailures: what is no answer is a failure of bounded cost and length, which says what happened (REST-13).
func TestFailures(t *testing.T) {
	elsewhere := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a redirect is followed") })
	for name, one := range map[string]struct {
		serve  http.HandlerFunc
		reason session.Reason
		says   string
	}{
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere+"/v3/discovery:clusters", http.StatusTemporaryRedirect)
		}, session.RefusedUpstream, "307 Temporary Redirect, to "},
		"a body without end": {func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := io.WriteString(w, strings.Repeat("x", 1<<16)); err != nil {
					return
				}
			}
		}, session.RefusedUpstream, "the answer is larger than upstream.max_receive_bytes (1048576 bytes)"},
		"a bomb": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			for range 1 << 12 {
				if _, err := z.Write(make([]byte, 1<<18)); err != nil { // 1 GiB
					return
				}
			}
		}, session.RefusedUpstream, "the answer is larger than"},
		"an error without end": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			for {
				if _, err := io.WriteString(w, "sorry\n"); err != nil {
					return
				}
			}
		}, session.Unreachable, "502 Bad Gateway: sorry sorry"},
		"silence": {func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body); <-r.Context().Done() }, session.Unreachable, "no answer within 300ms; see upstream.rest.timeout"},
		"half a body": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9")
			_, _ = io.WriteString(w, "{")
		}, session.Unreachable, "the answer breaks off: unexpected EOF"},
		"a broken line": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, session.Unreachable, "EOF"},
		"a 304 to no version": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) },
			session.RefusedUpstream, "304 Not Modified, though it was shown no version"},
		"204": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, session.RefusedUpstream, "204 No Content"},
		"403": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "\x00\xff\nno", http.StatusForbidden) }, session.Forbidden, "403 Forbidden: \x00? no"},
		"405": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMethodNotAllowed) }, session.RefusedUpstream, "405 Method Not Allowed"},
		"429": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }, session.Unreachable, "429 Too Many Requests"},
	} {
		t.Run(name, func(t *testing.T) {
			o := optionsFor(t, serve(t, one.serve))
			if name == "silence" {
				o.Timeout = 300 * time.Millisecond
			}
			_, end := newClient(o).ask(t.Context(), clusters)
			if end == nil || end.Reason != one.reason || !strings.HasPrefix(end.Message, "POST "+o.URL+"/v3/discovery:clusters: ") || !strings.Contains(end.Message, one.says) || len(end.Message) > 500 {
				t.Errorf("it hears %v; want %s, %q", end, one.reason, one.says)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, end := newClient(optionsFor(t, "http://127.0.0.1:1")).ask(ctx, clusters); end == nil {
		t.Error("there is an answer after the end")
	}
	if _, end := newClient(optionsFor(t, "http://127.0.0.1:1")).ask(t.Context(), clusters); end == nil || !strings.Contains(end.Message, "connection refused") || strings.Contains(end.Message, "Post ") {
		t.Errorf("where nobody listens it hears %v", end)
	}
}
