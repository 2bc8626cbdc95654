package fanout

import (
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// TestGuardHearsWhatIsKept: a control plane that has taken much away, and then speaks of some
// of it as of something that is there, by a heartbeat or by an update with a fault, has it after
// all: when the time is up, only the rest goes (H-22, TTL-4).
func TestGuardHearsWhatIsKept(t *testing.T) {
	for _, lane := range []Lane{all, byName} {
		guard := Guard{Fraction: 0.5, Min: 2, Within: time.Minute, Hold: 5 * time.Minute}
		h := NewHub(Config{Linger: time.Second, MaxLinger: 10, Guard: guard})
		interest := []string{"a", "b", "c"}
		if lane.Wildcard {
			interest = []string{Wildcard}
		}
		h.Subscribe(typ, NewSubscriber(func() {})).Delta(interest, nil, epoch)
		first := set("a", "b", "c")
		first.Stream, first.At, first.Synced = 1, epoch, lane.Wildcard
		h.Apply(lane, first)
		h.Apply(lane, &cache.Update{Stream: 2, At: epoch, Removed: []string{"a", "b", "c"}})
		for _, name := range []string{"a", "b", "c"} {
			if !h.On(lane).Has(name) {
				t.Fatalf("%v: %s is gone at once", lane, name)
			}
		}
		h.Apply(lane, &cache.Update{Stream: 2, At: epoch, Kept: []string{"b"}})
		h.Lapse(epoch.Add(guard.Hold + time.Second))
		for _, name := range []string{"a", "b", "c"} {
			if has := h.On(lane).Has(name); has != (name == "b") {
				t.Errorf("%v: %s is there when the time is up: %v", lane, name, has)
			}
		}
	}
}
