package relay

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// TestOutage_ServeStale (target R3, the virtual hour; internal/test/chaos has the real
// minutes): the control plane is away for an hour. The relay stays ready, who was
// there hears nothing, who comes is served, and the first change afterwards arrives
// within 2 s of the control plane's return.
func TestOutage_ServeStale(t *testing.T) {
	const clients = 100
	inWorld(t, []string{"upstream.backoff.max=1s"}, func(w *world) {
		var all []*client
		for i := range clients {
			all = append(all, w.open(w.dial(), fmt.Sprint("c", i), false))
		}
		synctest.Wait()
		w.publish()
		synctest.Wait()
		last := w.published[0].version
		w.plane.HangUp()
		w.up.Down()

		for range 12 {
			time.Sleep(5 * time.Minute)
			if ready, why := w.relay.Ready(); !ready {
				t.Errorf("not ready: %s", why)
			}
			late := w.open(w.dial(), fmt.Sprint("late", len(all)), false)
			synctest.Wait()
			if got := late.version("a"); got != last {
				t.Errorf("a client that came in the outage has %q, want %q", got, last)
			}
			all = append(all, late)
		}
		for i, c := range all {
			c.see(func() {
				if c.err != nil || c.responses != 1 || c.versions["a"] != last {
					t.Errorf("client %d: %d responses, version %q, ended with %v; want 1, %q and no end", i, c.responses, c.versions["a"], c.err, last)
				}
			})
		}

		_, _ = w.plane.Heard()
		w.up.Up()
		back := time.Now()
		for asked := 0; asked == 0; {
			time.Sleep(10 * time.Millisecond)
			events, err := w.plane.Heard()
			if err != nil {
				t.Fatal(err)
			}
			asked = len(events)
		}
		synctest.Wait()
		w.publish()
		synctest.Wait()
		took := time.Since(back)
		if took > 2*time.Second {
			t.Errorf("the first change took %v, want at most 2s", took)
		}
		for i, c := range all {
			if got, want := c.version("a"), versionOf(t, cache.Cluster, "a@2"); got != want {
				t.Errorf("client %d has %q after the outage, want %q", i, got, want)
			}
		}
		t.Logf("R3: an hour's outage, %d clients of which %d came during it; the first change arrived %v after the return", len(all), len(all)-clients, took)
	})
}
