package envoy

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/xds-relay/xds-relay/internal/admin"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/relay"
	"github.com/xds-relay/xds-relay/internal/test/e2e/loopback"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// relayed is a relay that runs in this process. It can be closed and started again, on
// the same address.
type relayed struct {
	t    testing.TB
	addr string
	sets []string
	log  *peer.Output
	now  *relay.Relay
	// metrics are of all the times that it ran.
	metrics *admin.Metrics
}

// startRelay runs a relay until the test ends. Each set is a key=value of the
// configuration.
func startRelay(t testing.TB, instance, upstream string, sets ...string) *relayed {
	t.Helper()
	r := &relayed{t: t, addr: loopback.Reserve(t), log: peer.NewOutput(t, "the relay "+instance), metrics: admin.NewMetrics(admin.ReadBuild("test"))}
	r.sets = slices.Concat([]string{"upstream.address=" + upstream, "instance=" + instance}, peer.QuickBackoff, sets)
	t.Cleanup(r.Close)
	r.Start()
	return r
}

// asks are what a relay is configured with that has its certificates in a directory, in files as Kubernetes names them, and
// asks its clients for theirs.
func asks(dir string) []string {
	return []string{
		"downstream.tls.client_ca=" + filepath.Join(dir, "ca.crt"), "downstream.tls.cert=" + filepath.Join(dir, "tls.crt"), "downstream.tls.key=" + filepath.Join(dir, "tls.key"),
	}
}

// Start starts the relay, again if it was closed.
func (r *relayed) Start() {
	r.t.Helper()
	c, err := config.Load("", r.sets)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.now, err = relay.New(c, relay.Options{Log: slog.New(slog.NewTextHandler(r.log, nil)), Upstream: r.metrics, Downstream: r.metrics}); err != nil {
		r.t.Fatal(err)
	}
	l, err := net.Listen("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.now.Serve(l)
}

// reconfigure changes keys of the configuration in force.
func (r *relayed) reconfigure(sets ...string) {
	r.t.Helper()
	r.sets = append(r.sets, sets...)
	c, err := config.Load("", r.sets)
	if err == nil {
		err = r.now.Reconfigure(c.Keeping(r.now.Config()))
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// Close ends it at once. It may be called twice.
func (r *relayed) Close() {
	if r.now != nil {
		r.now.Close(0)
		r.now = nil
	}
}

// nacks is how many responses its clients have rejected, as its metrics say.
func (r *relayed) nacks() (n int) {
	r.t.Helper()
	page := httptest.NewRecorder()
	h := admin.NewHandler(r.now, r.metrics, admin.HandlerOptions{Log: slog.New(slog.DiscardHandler)})
	h.ServeHTTP(page, httptest.NewRequest(http.MethodGet, "http://localhost/metrics", nil))
	if page.Code != http.StatusOK {
		r.t.Fatalf("the metrics: %d %s", page.Code, page.Body)
	}
	for line := range strings.Lines(page.Body.String()) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if !strings.HasPrefix(series, `xds_relay_requests_total{kind="nack",`) {
			continue
		}
		more, err := strconv.Atoi(value)
		if err != nil {
			r.t.Fatalf("the metrics: %s", line)
		}
		n += more
	}
	return n
}

// startProcess runs the relay's own binary until the test ends. It can be killed and started
// again, on the same address and with the same files.
func startProcess(t testing.TB, upstream string, sets ...string) *peer.Relay {
	t.Helper()
	r := newProcess(t, upstream, sets...)
	r.Start()
	return r
}

// newProcess is one that does not run yet.
func newProcess(t testing.TB, upstream string, sets ...string) *peer.Relay {
	t.Helper()
	dir, err := os.MkdirTemp("", "relay") // short: the name of a socket may have 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	addr, socket := loopback.Reserve(t), filepath.Join(dir, "admin")
	args := []string{"--upstream", upstream, "--listen", addr, "--admin", peer.Target(socket)}
	return peer.NewRelay(t, addr, socket, args, slices.Concat(peer.QuickBackoff, sets)...)
}
