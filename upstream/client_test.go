package upstream

import (
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/upstream/session"
)

// TestEffectsAreCarriedOutInOrder: what was learned first reaches the Hub first,
// whichever goroutines learned it. Otherwise a timer that ran out after a response
// came could remove what the response has just brought (MISS-7, H-40).
func TestEffectsAreCarriedOutInOrder(t *testing.T) {
	hub := fanout.NewHub(fanout.Config{})
	c := NewClient(session.Config{Entries: []session.Entry{{}}}, ClientOptions{Hub: hub, Log: slog.New(slog.DiscardHandler)})
	now := time.Now()
	hub.Subscribe(cache.Cluster, fanout.NewSubscriber(func() {})).Delta([]string{"a"}, nil, now)
	c.core.Interest(now)
	open, _ := c.core.Tick(now)
	if len(open) != 1 {
		t.Fatalf("%d streams are opened, want 1", len(open))
	}
	c.core.Opened(open[0].ID, now)
	var last string
	learn := func(n int) func(time.Time) {
		return func(now time.Time) {
			last = strconv.Itoa(n)
			c.core.Receive(open[0].ID, session.Decode(&discovery.DeltaDiscoveryResponse{
				TypeUrl: "unasked", ControlPlane: &core.ControlPlane{Identifier: last},
			}, cache.Fingerprint{}), now)
		}
	}
	for n := range 20_000 {
		var both sync.WaitGroup
		both.Go(func() { c.step(learn(2 * n)) })
		both.Go(func() { c.step(learn(2*n + 1)) })
		both.Wait()
		if got := hub.Identifier(); got != last {
			t.Fatalf("round %d: %s was learned last, and the Hub has %s", n, last, got)
		}
	}
}
