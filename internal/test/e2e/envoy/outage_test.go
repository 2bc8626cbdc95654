package envoy

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// privateDir is a directory that nobody else can use.
func privateDir(t testing.TB) string { return filepath.Join(t.TempDir(), "snapshot") }

// A relay is killed and comes back, with and without what it had written down. No request
// fails, and an Envoy is not sent again what it has, where the protocol lets it say what that is.
func TestRelayKilled(t *testing.T) {
	for _, w := range variants(way{relays: 1}) {
		for _, snapshot := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, snapshot=%v", w, snapshot), func(t *testing.T) {
				t.Parallel()
				realenvoy.Need(t)
				m := w.makes()
				backends := map[string]string{"a": realenvoy.Backend(t, "a"), "b": realenvoy.Backend(t, "b")}
				plane := newPlane(t, m.service("a", backends["a"])).Start()
				var sets []string
				if snapshot {
					sets = []string{"cache.snapshot.dir=" + privateDir(t), "cache.snapshot.interval=100ms"}
				}
				r := startProcess(t, plane.addr, sets...)
				s := &scene{t: t, way: w, plane: plane, tap: peer.StartTap(t, "what the Envoys said and heard", r.Addr, peer.TapOptions{})}
				e, address := s.ready("envoy", "a")
				load := realenvoy.Drive(t, address, rate())
				for range often(10, 2) {
					r.Kill()
					peer.Wait(300 * time.Millisecond)
					s.clear()
					up := plane.tape.Mark()
					r.Start()
					peer.Eventually(t, patience, func() error {
						for _, u := range []cache.TypeURL{cache.Cluster, cache.Endpoint, cache.Listener, cache.Route} {
							of := func(m peer.Said) bool { return m.URL == u }
							if !slices.ContainsFunc(s.tap.Since(s.mark), of) || !slices.ContainsFunc(plane.tape.Since(up), of) {
								return fmt.Errorf("the Envoy, or the relay, has not asked for %s", u.Short())
							}
						}
						return nil
					})
					peer.Throughout(t, time.Second, func() error {
						if told := s.told(); !w.sotw && len(told) > 0 {
							return fmt.Errorf("the Envoy was told what it knows: %v", told)
						}
						return nil
					})
				}
				s.plane.Change(func(has world) { has.put(cache.Endpoint, "a", endpoints("a", backends["b"])) })
				peer.Eventually(t, patience, func() error { return peer.Is("answer", load.Last(), "b") })
				unharmed(t, e, load)
			})
		}
	}
}

// The control plane hangs, or is killed. Envoys that are there keep what they have,
// new ones are served from the relay, and what has changed meanwhile reaches all when it is back.
func TestControlPlaneOutage(t *testing.T) {
	for _, how := range []string{"frozen", "killed"} {
		for _, w := range atFirst(2, variants(way{relays: 1, waits: true}), []way{{relays: 2, waits: true}}) {
			t.Run(fmt.Sprintf("%s, %v", how, w), func(t *testing.T) {
				t.Parallel()
				m := w.makes()
				backends := map[string]string{"a": realenvoy.Backend(t, "a"), "b": realenvoy.Backend(t, "b")}
				s := play(t, w, m.service("a", backends["a"]))
				e, address := s.ready("envoy", "a")
				load := realenvoy.Drive(t, address, rate())
				s.clear()
				if how == "frozen" {
					s.links[0].Freeze()
				} else {
					s.plane.Stop()
				}
				peer.Wait(time.Duration(often(30, 3)) * time.Second)
				newcomer, _ := s.ready("newcomer", "a")
				s.plane.Change(func(has world) {
					has.put(cache.Cluster, "b", m.cluster("b"))
					has.put(cache.Endpoint, "b", endpoints("b", backends["b"]))
					has.put(cache.Route, "web", routes("web", to("b")))
				})
				if how == "frozen" {
					s.links[0].Thaw()
				} else {
					s.plane.Start()
				}
				peer.Eventually(t, patience, func() error { return peer.Is("answer", load.Last(), "b") })
				address = listens(t, newcomer, "web")
				peer.Eventually(t, patience, func() error { return answers(address, "b") })
				for _, what := range s.told() {
					if slices.Contains([]string{"CDS -a", "EDS -a", "LDS -web", "RDS -web"}, what) {
						t.Errorf("told in an outage: %s", what)
					}
				}
				unharmed(t, e, load)
			})
		}
	}
}

// Of two tiers, either is down for a while. No request fails, and changes arrive.
func TestTiers(t *testing.T) {
	for _, w := range variants(way{relays: 2, waits: true}) {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			m := w.makes()
			backends := []string{realenvoy.Backend(t, "even"), realenvoy.Backend(t, "odd")}
			names := []string{"even", "odd"}
			s := play(t, w, m.service("a", backends[0]))
			e, address := s.ready("envoy", "even")
			load := realenvoy.Drive(t, address, rate())
			for i := 1; i <= often(20, 4); i++ {
				tier := s.relays[i%2]
				s.clear()
				tier.Close()
				peer.Wait(200 * time.Millisecond)
				s.plane.Change(func(has world) { has.put(cache.Endpoint, "a", endpoints("a", backends[i%2])) })
				tier.Start()
				peer.Eventually(t, patience, func() error { return peer.Is("answer", load.Last(), names[i%2]) })
				for _, what := range s.told() {
					if !w.sotw && what != "EDS +a" {
						t.Errorf("told although it has not changed: %s", what)
					}
				}
			}
			unharmed(t, e, load)
		})
	}
}
