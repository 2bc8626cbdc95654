package e2e

import (
	"fmt"
	"os"
	"testing"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/loopback"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// TestAbstractSockets: relays serve and reach each other on sockets without a file, as gRPC writes them.
func TestAbstractSockets(t *testing.T) {
	t.Parallel()
	w := newLinear(t)
	w.service("a", "127.0.0.1:1")
	cp := startControlPlane(t, w.Mux())
	socket := fmt.Sprintf("unix-abstract:xds-relay-e2e-%d", os.Getpid())
	serve := func(upstream, listen string) *peer.Relay {
		admin := loopback.Reserve(t)
		r := peer.NewRelay(t, listen, admin, []string{"--upstream", upstream, "--listen", listen, "--admin", admin}, "log.format=text", "instance=e2e")
		r.Start()
		return r
	}
	serve(cp.addr, socket)
	below := serve(socket, loopback.Reserve(t))
	c := openDelta(t, below.Addr, "c")
	c.Wildcard(cache.Cluster)
	eventually(t, patience, func() error { return c.Has(cache.Cluster, "a-cluster") })
}
