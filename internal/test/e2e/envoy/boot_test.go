package envoy

import (
	"testing"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// A new Envoy is ready, and serves, without waiting for anything that runs out; the
// second one has everything from the relay.
func TestBoot(t *testing.T) {
	ways := atFirst(3, variants(way{relays: 1}), variants(way{relays: 1, perType: true}), variants(way{relays: 2, waits: true}))
	for _, w := range ways {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			s := play(t, w, w.makes().service("a", realenvoy.Backend(t, "a")))
			first, _ := s.ready("first", "a")
			d, err := first.Dump()
			if err != nil {
				t.Fatal(err)
			}
			for what, has := range map[string]map[string]realenvoy.Resource{
				"cluster a": d.Clusters, "endpoints a": d.Endpoints, "listener web": d.Listeners, "routes web": d.Routes,
			} {
				if len(has) != 1 {
					t.Errorf("not just %s: %v", what, has)
				}
			}
			mark := s.plane.tape.Mark()
			s.ready("second", "a")
			if more := s.plane.tape.Since(mark); len(more) > 0 {
				t.Errorf("the control plane was asked again: %v", more)
			}
			if n := s.plane.tape.Opened(); n != 1 {
				t.Errorf("%d streams to the control plane", n)
			}
		})
	}
}

// An Envoy is ready although there is nothing for it, and takes what comes then.
func TestBootWithNothing(t *testing.T) {
	for _, w := range variants(way{relays: 1}) {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			s := play(t, w, world{})
			e := s.envoy("envoy")
			e.WaitReady(patience)
			all := w.makes().service("a", realenvoy.Backend(t, "a"))
			s.plane.Change(func(has world) {
				for _, u := range []cache.TypeURL{cache.Cluster, cache.Endpoint, cache.Listener, cache.Route} {
					has[u] = all[u]
				}
			})
			address := listens(t, e, "web")
			peer.Eventually(t, patience, func() error { return answers(address, "a") })
		})
	}
}
