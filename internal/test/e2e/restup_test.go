package e2e

import (
	"context"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	gcptypes "github.com/envoyproxy/go-control-plane/pkg/cache/types"
	gcp "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	gcpserver "github.com/envoyproxy/go-control-plane/pkg/server/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/loopback"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// gateway is go-control-plane's HTTP gateway, on HTTPS, at an address of its own.
type gateway struct {
	t       testing.TB
	addr    string
	handler http.Handler
	server  *httptest.Server
	polls   atomic.Int64
}

func newGateway(t testing.TB, c gcp.Cache) *gateway {
	t.Helper()
	g := &gateway{t: t, addr: loopback.Reserve(t)}
	over := gcpserver.HTTPGateway{Server: gcpserver.NewServer(t.Context(), c, nil)}
	g.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.polls.Add(1)
		body, code, err := over.ServeHTTP(r)
		if err != nil {
			body = []byte(err.Error())
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = w.Write(body) // whoever has gone asks again
	})
	t.Cleanup(func() { g.stop() })
	return g
}

// start serves, and returns the file with its certificate.
func (g *gateway) start() (ca string) {
	g.t.Helper()
	l, err := net.Listen("tcp", g.addr)
	if err != nil {
		g.t.Fatal(err)
	}
	g.server = httptest.NewUnstartedServer(g.handler)
	g.server.Listener.Close()
	g.server.Listener, g.server.Config.ErrorLog = l, log.New(io.Discard, "", 0)
	g.server.StartTLS()
	ca = filepath.Join(g.t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: g.server.Certificate().Raw}), 0o600); err != nil {
		g.t.Fatal(err)
	}
	return ca
}

// stop closes its listener and all connections.
func (g *gateway) stop() {
	if g.server != nil {
		g.server.CloseClientConnections()
		g.server.Close()
		g.server = nil
	}
}

// TestREST: a go-control-plane that is asked over REST, by TLS: clients of each kind have what it has, with its changes, and
// keep it while it is away.
func TestREST(t *testing.T) {
	t.Parallel()
	snapshots := gcp.NewSnapshotCache(false, gcp.IDHash{}, nil)
	set := func(version string, revision int, clusters ...string) {
		t.Helper()
		resources := map[string][]gcptypes.Resource{string(cache.Route): {routeTo("r", revision, clusters[0])}, string(cache.Listener): {apiListener("l", revision, "r")}}
		for _, name := range clusters {
			resources[string(cache.Cluster)] = append(resources[string(cache.Cluster)], edsCluster(name, revision))
			resources[string(cache.Endpoint)] = append(resources[string(cache.Endpoint)], endpoints(name, revision, "127.0.0.1:1"))
		}
		s, err := gcp.NewSnapshot(version, resources)
		if err != nil {
			t.Fatal(err)
		}
		if err := snapshots.SetSnapshot(context.Background(), "edge-1", s); err != nil {
			t.Fatal(err)
		}
	}
	set("1", 1, "a", "b")
	up := newGateway(t, snapshots)
	ca := up.start()
	r := startRelay(t, "rest+https://"+up.addr, "upstream.node.id=edge-1", "upstream.tls.ca="+ca, "upstream.tls.server_name=example.com",
		"upstream.rest.poll=200ms", "upstream.backoff.initial=100ms", "upstream.backoff.max=300ms")
	e := startEnvoy(t, r.addr, "envoy", nil)
	g := openSotw(t, r.addr, "grpc")
	g.Watch(cache.Listener, "l")
	g.Watch(cache.Route, "r")
	g.Watch(cache.Cluster, "a")
	g.Watch(cache.Endpoint, "a")
	has := func(clusters ...string) func() error {
		return func() error {
			return first(e.Has(cache.Cluster, clusters...), e.Has(cache.Endpoint, clusters...), e.Has(cache.Listener, "l"), e.Has(cache.Route, "r"),
				g.Has(cache.Listener, "l"), g.Has(cache.Route, "r"), g.Has(cache.Cluster, "a"), g.Has(cache.Endpoint, "a"))
		}
	}
	eventually(t, patience, has("a", "b"))
	set("2", 2, "a", "c")
	eventually(t, patience, func() error {
		return first(has("a", "c")(),
			e.AtLeast(cache.Listener, "l", 2), e.AtLeast(cache.Route, "r", 2), e.AtLeast(cache.Cluster, "c", 2), e.AtLeast(cache.Endpoint, "c", 2),
			e.AtLeast(cache.Cluster, "a", 2), e.AtLeast(cache.Endpoint, "a", 2), g.AtLeast(cache.Cluster, "a", 2), g.AtLeast(cache.Endpoint, "a", 2))
	})
	up.stop()
	e.Forget()
	for range 3 {
		peer.Wait(time.Second)
		late := newDelta(t, r.addr, "late")
		late.Open()
		late.Wildcard(cache.Cluster)
		eventually(t, patience, func() error { return late.Has(cache.Cluster, "a", "c") })
		late.Close()
	}
	if err := first(has("a", "c")(), e.HeardOnly()); err != nil {
		t.Fatal(err)
	}
	up.start()
	set("3", 3, "a", "c")
	eventually(t, patience, func() error {
		return first(has("a", "c")(), e.AtLeast(cache.Endpoint, "a", 3), g.AtLeast(cache.Endpoint, "a", 3))
	})
	before, began := up.polls.Load(), time.Now()
	peer.Wait(2 * time.Second)
	polls := up.polls.Load() - before
	// Six pollers, as listeners and clusters are polled for all and by name; each waits for nine tenths of upstream.rest.poll or longer.
	if most := 6 * (int64(time.Since(began)/(180*time.Millisecond)) + 1); polls < 6 || polls > most {
		t.Errorf("%d polls of four types; six to %d are wanted", polls, most)
	}
	if err := first(e.Sound(), g.Sound()); err != nil {
		t.Fatal(err)
	}
}
