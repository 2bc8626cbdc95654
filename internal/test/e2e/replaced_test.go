package e2e

import (
	"context"
	"fmt"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	gcptypes "github.com/envoyproxy/go-control-plane/pkg/cache/types"
	gcp "github.com/envoyproxy/go-control-plane/pkg/cache/v3"

	"github.com/xds-relay/xds-relay/cache"
)

// TestReplacedTogether: an ordinary snapshot renames all listeners, turns the routes to a new cluster and takes
// the old one away. Whatever the client owes, each listener comes in the response that removes the one that
// it replaces (ORDER-2), through one relay and through two.
func TestReplacedTogether(t *testing.T) {
	const listeners, turns = 30, 20
	owes := func(u cache.TypeURL) func(*deltaClient, *discovery.DeltaDiscoveryResponse) bool {
		return func(c *deltaClient, r *discovery.DeltaDiscoveryResponse) bool {
			if cache.TypeURL(r.GetTypeUrl()) != u {
				return false
			}
			go func() {
				wait(comeBack)
				c.mu.Lock()
				defer c.mu.Unlock()
				c.ack(u, r.GetNonce())
			}()
			return true
		}
	}
	for name, follow := range map[string]func(*deltaClient, *discovery.DeltaDiscoveryResponse) bool{
		"nothing owed":                       func(*deltaClient, *discovery.DeltaDiscoveryResponse) bool { return false },
		"routes acknowledged late":           owes(cache.Route),
		"clusters acknowledged late":         owes(cache.Cluster),
		"listeners acknowledged late":        owes(cache.Listener),
		"the client comes back at each turn": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snapshots := gcp.NewSnapshotCache(true, gcp.IDHash{}, nil)
			names := func(turn int) (all []string) {
				for i := range listeners {
					all = append(all, fmt.Sprintf("l%d-%d", i, turn))
				}
				return all
			}
			set := func(turn int) {
				t.Helper()
				target := fmt.Sprintf("c%d", turn)
				byType := map[string][]gcptypes.Resource{
					string(cache.Cluster): {staticCluster(target, 1)},
					string(cache.Route):   {routeTo("r", turn, target)},
				}
				for _, name := range names(turn) {
					byType[string(cache.Listener)] = append(byType[string(cache.Listener)], apiListener(name, 1, "r"))
				}
				s, err := gcp.NewSnapshot(fmt.Sprint(turn), byType)
				if err == nil {
					err = snapshots.SetSnapshot(context.Background(), "edge", s)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			set(0)
			cp := startControlPlane(t, snapshots)
			r := startRelay(t, cp.addr, "upstream.node.id=edge")
			behind := startRelay(t, r.addr, "instance=behind")
			var clients []*deltaClient
			for i, target := range []string{r.addr, behind.addr} {
				c := newDelta(t, target, fmt.Sprint("envoy", i))
				if follow != nil {
					c.follow = func(r *discovery.DeltaDiscoveryResponse) bool { return follow(c, r) }
				}
				c.Open()
				c.Wildcard(cache.Cluster)
				c.Wildcard(cache.Listener)
				c.Subscribe(cache.Route, "r")
				clients = append(clients, c)
			}
			has := func(turn int) func() error {
				return func() error {
					return first(
						clients[0].Has(cache.Listener, names(turn)...), clients[1].Has(cache.Listener, names(turn)...),
						clients[0].AtLeast(cache.Route, "r", turn), clients[1].AtLeast(cache.Route, "r", turn),
					)
				}
			}
			eventually(t, patience, has(0))
			for _, c := range clients {
				c.Forget()
			}
			for turn := 1; turn <= turns; turn++ {
				set(turn)
				if follow == nil {
					clients[0].Reconnect()
					clients[1].Reconnect()
				}
				eventually(t, patience, has(turn))
			}
			for _, c := range clients {
				for _, h := range c.Heard(cache.Listener) {
					if len(h.set) != len(h.removed) {
						t.Errorf("%s: %d listeners come and %d go in response %s", c.name, len(h.set), len(h.removed), h.nonce)
					}
				}
			}
		})
	}
}
