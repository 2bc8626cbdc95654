package upstream

import (
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/fanout"
)

// TestEffectsAreCarriedOutInOrder: what was learned first reaches the Hub first,
// whichever goroutines learned it. Otherwise a timer that ran out after a response
// came could remove what the response has just brought (MISS-7, H-40).
func TestEffectsAreCarriedOutInOrder(t *testing.T) {
	hub := fanout.NewHub(fanout.Config{})
	c := NewClient(Config{Entries: []Entry{{}}}, ClientOptions{Hub: hub, Log: slog.New(slog.DiscardHandler)})
	var last string
	learn := func(n int) func(time.Time) {
		return func(time.Time) {
			last = strconv.Itoa(n)
			c.core.effects = append(c.core.effects, Effect{Identifier: last})
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
