//go:build linux

package chaos

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// R21: the control plane comes back with nothing at all.
func TestR21_EmptyUpstream(t *testing.T) {
	hold, look := 4*time.Second, 2*time.Second
	if long() {
		hold, look = time.Minute, 50*time.Second
	}
	r := begin(t, "R21", "mass removal: upstream returns empty wildcard after reconnect: 0 removals sent within hold, alert < 15 s",
		usualLoad+fmt.Sprintf("; cache.mass_removal_guard: fraction 0.5, min 5, hold %v; the control plane restarts without any resource, and gets them back before the hold is over", hold))
	w := usual()
	w.RemoveOneIn = 0
	h := newHistory(w)
	up := startUpstream(t, h)
	relay := startRelay(t, up.addr, "cache.mass_removal_guard.fraction=0.5", "cache.mass_removal_guard.min=5", fmt.Sprintf("cache.mass_removal_guard.hold=%v", hold))
	r.fleet = startFleet(t, h, relay.Addr, thousand())
	stop := up.Churn(50)
	pause(context.Background(), span(3*time.Second))
	stop()
	r.fleet.Converge()

	up.Kill()
	up.Start(true)
	begun := time.Now()
	held := eventually(t, func() error {
		if n := relay.Metrics().Sum("xds_relay_cache_removals_held"); n == 0 {
			return fmt.Errorf("nothing is held back")
		}
		return nil
	})
	r.below("seen in the metric behind the alert after", seconds(held), 15, "s")
	r.tell("removals held back", relay.Metrics().Sum("xds_relay_cache_removals_held"), "")
	logged := relay.Output.Has("held") || relay.Output.Has("hold")
	r.holds("lines in the log that say so", count(logged), "", "1", logged)
	pause(context.Background(), look-time.Since(begun))
	r.none("removals heard by clients within the hold", r.fleet.removals.Load())
	r.tell("looked for", seconds(time.Since(begun)), "s")

	// The control plane finds its resources again.
	up.command(fmt.Sprintf("%s %d", cmdFill, h.Step()))
	forgotten := eventually(t, func() error {
		if n := relay.Metrics().Sum("xds_relay_cache_removals_held"); n > 0 {
			return fmt.Errorf("%v removals are still held back", n)
		}
		return nil
	})
	r.tell("nothing held back any more after", seconds(forgotten), "s")
	up.Step()
	r.fleet.Converge()
	r.none("removals heard by clients at all", r.fleet.removals.Load())
	r.sound()
	r.connected()
}

func count(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
