//go:build linux

package attack

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// pages are all that the admin endpoint shows.
var pages = []string{"/", "/clients", "/groups", "/resources", "/resources?type=SDS", "/events", "/logging", "/metrics", "/server_info", "/readyz?verbose", "/livez?verbose", "/debug/check",
	"/debug/pprof/", "/debug/pprof/goroutine?debug=2", "/debug/pprof/heap?debug=1", "/debug/pprof/allocs?debug=1", "/debug/pprof/mutex?debug=1", "/debug/pprof/cmdline"}

// slowloris begins requests to the admin endpoint that it never ends.
func slowloris(ctx context.Context, at *target) (string, error) {
	var held []net.Conn
	for range 500 {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", at.Admin)
		if err != nil {
			break
		}
		defer c.Close()
		held = append(held, c)
	}
	said := len(held)
	for text := "GET /livez HTTP/1.1\r\nHost: localhost\r\nX-A: " + strings.Repeat("a", 1000); ctx.Err() == nil && text != ""; text = text[1:] {
		held = slices.DeleteFunc(held, func(c net.Conn) bool {
			_ = c.SetWriteDeadline(time.Now().Add(time.Second)) // an error is told by the write
			_, err := c.Write([]byte(text[:1]))
			return err != nil
		})
		pause(ctx, 50*time.Millisecond)
	}
	return fmt.Sprintf("%d connections, %d at the end", said, len(held)), nil
}

// probed: the probes are answered.
func probed(w *world) error {
	for range 10 {
		for _, page := range []string{"/livez", "/readyz", "/metrics"} {
			if _, err := w.relay.Page(page); err != nil {
				return err
			}
		}
		peer.Wait(100 * time.Millisecond)
	}
	return nil
}

// TestAdminFromOutside: the admin endpoint is for this host and for no page of a browser.
func TestAdminFromOutside(t *testing.T) {
	t.Parallel()
	w := newWorld(t, &attack{ID: "T8", Name: "the admin endpoint from outside"})
	w.noteEnd()
	ask := func(method, path string, with func(*http.Request)) int {
		req, err := http.NewRequest(method, "http://"+w.target.Admin+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		with(req)
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for _, host := range []string{"evil.example", "127.0.0.1.evil.example:80", "192.0.2.1"} {
		for _, page := range pages {
			if code := ask("GET", page, func(r *http.Request) { r.Host = host }); code != http.StatusMisdirectedRequest {
				t.Errorf("%s of %s answers %d", page, host, code)
			}
		}
	}
	for header, value := range map[string]string{"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"} {
		for _, path := range []string{"/logging?level=debug", "/-/reload", "/guard/release?type=CDS"} {
			if code := ask("POST", path, func(r *http.Request) { r.Header.Set(header, value) }); code != http.StatusForbidden {
				t.Errorf("%s with %s: %s answers %d", path, header, value, code)
			}
		}
	}
	_, port, err := net.SplitHostPort(w.target.Admin)
	if err != nil {
		t.Fatal(err)
	}
	other := otherAddress(t)
	if c, err := net.Dial("tcp", net.JoinHostPort(other, port)); err == nil {
		c.Close()
		t.Errorf("it is reached by %s", other)
	}
	refused(t, "admin.listen", "admin.listen=0.0.0.0:0")
}
