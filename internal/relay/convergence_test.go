package relay

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// convergences are what a relay says of how long changes take.
type convergences struct {
	mu   sync.Mutex
	took []time.Duration
}

func (c *convergences) Converged(_ cache.TypeURL, after time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.took = append(c.took, after)
}

func (c *convergences) ConvergenceSkipped(int) {}

// since are those that were heard of since the last call, within two seconds from now.
func (c *convergences) since() (took []time.Duration) {
	time.Sleep(2 * convergenceEvery)
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	took, c.took = c.took, nil
	return took
}

// TestConvergence: over gRPC, it is heard how long changes take to the last client; also after the configuration has
// changed, and when a client never acknowledges.
func TestConvergence(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		is := func(what string, want ...time.Duration) {
			t.Helper()
			if got := w.converged.since(); !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		w.open(w.dial(), "fast", false)
		slow := w.open(w.dial(), "slow", true)
		synctest.Wait()
		w.publish()
		is("one of two has it")
		slow.hear()
		is("both have it", 2*time.Second)
		was := w.relay.groups.hub.Convergence
		w.reconfigure("timers.ack_timeout=3s")
		if w.relay.groups.hub.Convergence != was {
			t.Error("groups that are made from now on are not measured")
		}
		w.publish()
		synctest.Wait()
		slow.hear()
		is("by another configuration", time.Nanosecond) // no time passes
		w.publish()
		is("slow is to have another one")
		w.conns[1].Close()
		is("slow has gone", 2*time.Second)

		w.open(w.dial(), "deaf", true)
		is("a newcomer")
		w.publish()
		is("it never acknowledges")
		time.Sleep(fanout.MaxConvergence)
		is("it is waited for in vain", fanout.MaxConvergence)
		w.publish()
		is("it is waited for no more", time.Nanosecond)
	})
}
