package envoy

import (
	"fmt"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// A route is moved to a new cluster while the relay is down. When it is back, with or
// without what it had written down, no request finds its cluster missing (ORDER-3: the
// answer to who brought something waits as a change does).
func TestMovedWhileAway(t *testing.T) {
	for _, w := range variants(way{relays: 1, waits: true}) {
		for _, snapshot := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, snapshot=%v", w, snapshot), func(t *testing.T) {
				t.Parallel()
				e, load := moved(t, w, snapshot, false)
				unharmed(t, e, load)
			})
		}
	}
}

// The old cluster goes in the same moment. Its removal could come with the new one, in the
// answer to the first request of the stream, before the Envoy has asked for its routes, as it
// does without a relay. (On SotW it does: a whole set cannot list what is gone and was never sent here.)
func TestReplacedWhileAway(t *testing.T) {
	for _, snapshot := range []bool{false, true} {
		t.Run(fmt.Sprintf("snapshot=%v", snapshot), func(t *testing.T) {
			t.Parallel()
			e, load := moved(t, way{relays: 1, waits: true}, snapshot, true)
			unharmed(t, e, load)
		})
	}
}

// moved moves a route while the relay is down. If the old cluster does not go then, it
// goes afterwards.
func moved(t *testing.T, w way, snapshot, goes bool) (*realenvoy.Envoy, *realenvoy.Load) {
	t.Helper()
	m := w.makes()
	var sets []string
	if snapshot {
		sets = []string{"cache.snapshot.dir=" + privateDir(t), "cache.snapshot.interval=100ms"}
	}
	backends := []string{realenvoy.Backend(t, "even"), realenvoy.Backend(t, "odd")}
	names := []string{"even", "odd"}
	s := play(t, w, m.service("cluster-0", backends[0]), sets...)
	e, address := s.ready("envoy", "even")
	load := realenvoy.Drive(t, address, rate())
	for i := 1; i <= often(20, 3); i++ {
		was, is_ := fmt.Sprintf("cluster-%d", i-1), fmt.Sprintf("cluster-%d", i)
		drop := func(has world) {
			has.drop(cache.Cluster, was)
			has.drop(cache.Endpoint, was)
		}
		s.relays[0].Close()
		s.plane.Change(func(has world) {
			has.put(cache.Cluster, is_, m.cluster(is_))
			has.put(cache.Endpoint, is_, endpoints(is_, backends[i%2]))
			has.put(cache.Route, "web", routes("web", to(is_)))
			if goes {
				drop(has)
			}
		})
		peer.Wait(200 * time.Millisecond)
		s.relays[0].Start()
		peer.Eventually(t, patience, func() error { return peer.Is("answer", load.Last(), names[i%2]) })
		if !goes {
			s.plane.Change(drop)
		}
		peer.Eventually(t, patience, func() error {
			c, err := e.Clusters()
			if _, still := c[was]; err == nil && still {
				err = fmt.Errorf("%s is still there", was)
			}
			return err
		})
	}
	return e, load
}
