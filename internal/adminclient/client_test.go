package adminclient

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// serving answers as a relay does, at a TCP address and at a Unix socket.
func serving(t *testing.T) []string {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /list", func(w http.ResponseWriter, req *http.Request) {
		fmt.Fprintf(w, `{"a": %q}`, req.URL.Query().Get("q"))
	})
	mux.HandleFunc("POST /act", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "done") })
	mux.HandleFunc("GET /stream", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, ": hello\n\nid: 1\nevent: nack\ndata: {\"a\":\ndata: 1}\n\ndata: x\n\n")
	})
	var addresses []string
	socket := filepath.Join(t.TempDir(), "s")
	for _, at := range []string{"127.0.0.1:0", socket} {
		network := "unix"
		if strings.Contains(at, ":") {
			network = "tcp"
		}
		l, err := net.Listen(network, at)
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewUnstartedServer(mux)
		s.Listener.Close()
		s.Listener = l
		s.Start()
		t.Cleanup(s.Close)
		addresses = append(addresses, map[string]string{"tcp": l.Addr().String(), "unix": "unix://" + socket}[network])
	}
	return addresses
}

func TestClient(t *testing.T) {
	for _, address := range serving(t) {
		c, err := New(address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var got struct{ A string }
		if err := c.Get(t.Context(), "/list", url.Values{"q": {"b&c"}}, &got); err != nil || got.A != "b&c" {
			t.Errorf("%q, %v", got.A, err)
		}
		if text, err := c.Post(t.Context(), "/act", nil); err != nil || text != "done" {
			t.Errorf("%q, %v", text, err)
		}
		var refused *StatusError
		if _, err := c.Text(t.Context(), "/act", nil); !errors.As(err, &refused) || refused.Code != http.StatusMethodNotAllowed {
			t.Errorf("GET of what acts: %v", err)
		}
		var events []string
		for e, err := range c.Stream(t.Context(), "/stream", nil) {
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, fmt.Sprintf("%s %s %s", e.ID, e.Name, e.Data))
		}
		if want := []string{"1 nack {\"a\":\n1}", "  x"}; !slices.Equal(events, want) {
			t.Errorf("%q, want %q", events, want)
		}
	}
}

func TestMistakes(t *testing.T) {
	if _, err := New("unix:relative"); err == nil {
		t.Error("a relative socket is taken")
	}
	c, err := New("127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Text(t.Context(), "/x", nil); err == nil || !strings.Contains(err.Error(), "nobody answers at 127.0.0.1:1: ") || !strings.HasSuffix(err.Error(), "is the relay running, with this as admin.listen?") {
		t.Errorf("%v", err)
	}
}
