package relay

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/cache"
)

// next opens the next stream: streams are numbered as they come.
func (w *world) next(node string) *client {
	w.t.Helper()
	c := w.open(w.dial(), node, false)
	synctest.Wait()
	return c
}

// TestResync: a Delta client is sent again what it subscribes to, by wildcard and by name, and nobody else is sent
// anything. A SotW client has to connect again.
func TestResync(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		all, other, named := w.next("all"), w.next("other"), w.next("named")
		w.publish()
		synctest.Wait()
		named.send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Cluster), ResourceNamesSubscribe: []string{"a"}})
		sotw, err := discovery.NewAggregatedDiscoveryServiceClient(w.dial()).StreamAggregatedResources(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if err := sotw.Send(&discovery.DiscoveryRequest{Node: &core.Node{Id: "sotw"}, TypeUrl: string(cache.Cluster)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)

		heard := func(c *client) (n int) {
			c.see(func() { n = c.responses })
			return n
		}
		for _, c := range []struct {
			*client
			stream uint64
		}{{all, 1}, {named, 3}} {
			before, others := heard(c.client), heard(other)
			c.see(func() { c.versions = map[string]string{} })
			if !w.relay.Resync(c.stream) {
				t.Fatalf("there is no stream %d", c.stream)
			}
			time.Sleep(time.Second)
			if got := c.version("a"); got != w.published[0].version || heard(c.client) == before {
				t.Errorf("stream %d: after %d responses it has %q, want %q", c.stream, heard(c.client)-before, got, w.published[0].version)
			}
			if heard(other) != others {
				t.Error("another client is sent something, too")
			}
		}
		if broken := w.relay.Check(); len(broken) > 0 {
			t.Error(broken)
		}
		if !w.relay.Resync(4) {
			t.Fatal("there is no SotW stream")
		}
		for err == nil {
			_, err = sotw.Recv()
		}
		if status.Code(err) != codes.Unavailable {
			t.Errorf("the SotW stream ended with %v", err)
		}
		if w.relay.Resync(99) {
			t.Error("there is a stream that nobody opened")
		}
	})
}

// TestDisconnect: the stream of one client ends, with a status upon which clients connect again.
func TestDisconnect(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		one, other := w.next("one"), w.next("other")
		if !w.relay.Disconnect(1) || w.relay.Disconnect(99) {
			t.Error("which streams there are is not known")
		}
		synctest.Wait()
		if _, err := one.over(); status.Code(err) != codes.Unavailable {
			t.Errorf("the stream ended with %v", err)
		}
		if _, err := other.over(); err != nil || w.relay.Count() != 1 {
			t.Errorf("another stream ended: %v; %d are left", err, w.relay.Count())
		}
		if n := w.seen.endings("operator"); n != 1 {
			t.Errorf("%d streams were ended by an operator", n)
		}
	})
}
