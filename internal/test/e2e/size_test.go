package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	gcptypes "github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"google.golang.org/grpc"

	"github.com/xds-relay/xds-relay/cache"
)

// TestMoreNamesThanOneRequestHolds: what clients want together is longer than a
// server of grpc-go takes in one request, with versions or without. All of it is
// answered, and after the control plane was killed and came back everything that
// happened meanwhile arrives; no type is blamed, and no request refused (UP-17, H-39).
func TestMoreNamesThanOneRequestHolds(t *testing.T) {
	t.Parallel()
	const clients, each = 3, 10_000
	name := func(i int) string {
		return fmt.Sprintf("outbound|8080||service-%05d.%s.svc.cluster.local", i, strings.Repeat("namespace-", 8))
	}
	world := make(map[string]gcptypes.Resource)
	for i := range clients * each {
		world[name(i)] = endpoints(name(i), 1, "127.0.0.1:1")
	}
	w := newLinear(t, cache.Endpoint)
	w.Fill(cache.Endpoint, world)
	cp := startControlPlane(t, w.Mux(), grpc.MaxRecvMsgSize(4<<20)) // what it is by default
	r := startRelay(t, cp.addr)
	deltas := make([]*deltaClient, clients)
	for c := range clients {
		deltas[c] = openDelta(t, r.addr, fmt.Sprintf("client-%d", c))
		deltas[c].Subscribe(cache.Endpoint, numberedBy(func(i int) string { return name(c*each + i) }, each)...)
	}
	// has: each client has what it asked for, except for those that are gone.
	has := func(gone ...int) error {
		for c, d := range deltas {
			var names []string
			for i := c * each; i < (c+1)*each; i++ {
				without := false
				for _, g := range gone {
					without = without || g == i
				}
				if !without {
					names = append(names, name(i))
				}
			}
			if err := d.Has(cache.Endpoint, names...); err != nil {
				return err
			}
		}
		return nil
	}
	begin := time.Now()
	eventually(t, 2*patience, func() error { return has() })
	t.Logf("%d names of %d bytes are there after %v", clients*each, len(name(0)), time.Since(begin).Round(time.Millisecond))

	// Of the first request's names, which it is shown, and of the last one's, which it is not.
	changed, gone := []int{1, 17_000, clients*each - 2}, []int{0, clients*each - 1}
	cp.Stop()
	for _, i := range changed {
		w.Set(cache.Endpoint, name(i), endpoints(name(i), 2, "127.0.0.1:2"))
	}
	for _, i := range gone {
		w.Delete(cache.Endpoint, name(i))
	}
	cp.Start()
	begin = time.Now()
	eventually(t, 2*patience, func() error {
		for _, i := range changed {
			if err := deltas[i/each].AtLeast(cache.Endpoint, name(i), 2); err != nil {
				return err
			}
		}
		return deltas[0].Missing(cache.Endpoint, name(gone[0]))
	})
	t.Logf("what changed meanwhile is there %v after the control plane is back", time.Since(begin).Round(time.Millisecond))
	// A server that is not shown a name says nothing of it when it is gone: RECON-12.
	eventually(t, 4*patience, func() error { return deltas[clients-1].Missing(cache.Endpoint, name(gone[1])) })
	t.Logf("what was removed meanwhile, and not shown, is gone after %v", time.Since(begin).Round(time.Millisecond))

	w.Set(cache.Endpoint, name(clients*each-3), endpoints(name(clients*each-3), 3, "127.0.0.1:3"))
	eventually(t, patience, func() error { return deltas[clients-1].AtLeast(cache.Endpoint, name(clients*each-3), 3) })
	cp.see(func(streams []*upstreamStream) {
		last := streams[len(streams)-1]
		if shown := len(last.versions[cache.Endpoint]); shown == 0 || shown >= clients*each {
			t.Errorf("the relay shows versions of %d of %d names", shown, clients*each)
		}
	})
	err := first(
		has(gone...),
		deltas[0].Sound(), deltas[1].Sound(), deltas[2].Sound(), cp.deltaADSOnly(),
		cp.subscribedOnce(cache.Endpoint, clients*each),
		is("streams for a type that is blamed", cp.openedAs("solo"), 0),
		is("streams upstream ever", cp.Opened(), 2),
		is("complaints of a request that is too long", len(r.log.Lines("was written")), 0),
	)
	if err != nil {
		t.Error(err)
	}
}
