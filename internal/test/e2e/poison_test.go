package e2e

import (
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// A type that the control plane does not know makes MuxCache end the whole stream.
// Asked for first, in the middle or last, it keeps nobody else from updates for
// more than 5 s, before and after a restart of the control plane; the stream of all
// others stays up from then on, and nothing is left once that client has gone
// (H-39, H-41).
func TestPoisonType(t *testing.T) {
	const (
		limit  = 5 * time.Second
		poison = cache.Runtime // newLinear has no cache for it
		calm   = 2 * time.Second
	)
	for position, order := range map[string][]string{
		"first":  {"poison", "envoy", "grpc"},
		"middle": {"envoy", "poison", "grpc"},
		"last":   {"envoy", "grpc", "poison"},
	} {
		t.Run(position, func(t *testing.T) {
			t.Parallel()
			w := newLinear(t)
			w.service("a", "127.0.0.1:1")
			cp := startControlPlane(t, w.Mux())
			r := startRelay(t, cp.addr)

			var e *envoy
			var s *sotwClient
			p := newDelta(t, r.addr, "poison")
			p.persistent = true
			for _, who := range order {
				switch who {
				case "poison":
					p.Open()
					p.Subscribe(poison, "layer")
					eventually(t, limit, func() error { return cp.subscribes(poison, "layer") })
				case "envoy":
					e = startEnvoy(t, r.addr, "envoy", nil)
				case "grpc":
					s = openSotw(t, r.addr, "grpc")
					s.Watch(cache.Endpoint, "a-cluster")
					s.Watch(cache.Route, "a-route")
				}
			}
			revision := 1
			updated := func() time.Duration {
				t.Helper()
				revision++
				for _, u := range usualTypes {
					w.Set(u, nameOf(u), revised(u, revision))
				}
				return eventually(t, limit, func() error {
					for _, u := range usualTypes {
						if err := e.AtLeast(u, nameOf(u), revision); err != nil {
							return err
						}
					}
					return first(s.AtLeast(cache.Endpoint, "a-cluster", revision), s.AtLeast(cache.Route, "a-route", revision))
				})
			}
			t.Logf("poison asked for: updates after %v", updated())
			eventually(t, 2*limit, func() error {
				return is("convictions in the log", len(r.log.Lines("ends the stream when asked for a type", string(poison))), 1)
			})
			t.Logf("poison convicted: updates after %v", updated())

			// From now on it is asked for alone, however often it is.
			mains := cp.openedAs("main")
			until := time.Now().Add(calm)
			for time.Now().Before(until) {
				updated()
			}
			if err := is("main streams", cp.openedAs("main"), mains); err != nil {
				t.Error(err)
			}

			cp.Stop()
			wait(quiet)
			cp.Start()
			t.Logf("control plane restarted: updates after %v", updated())
			mains = cp.openedAs("main")

			p.Close()
			eventually(t, patience, func() error {
				return is("ends of its stream in the log", len(r.log.Lines("client stream ended", "node_id=poison")), 1)
			})
			wait(quiet) // an attempt for it may be on its way
			eventually(t, patience, func() error { return is("streams upstream", cp.Open(), 1) })
			opened := cp.Opened()
			throughout(t, calm, func() error {
				return first(is("streams upstream", cp.Open(), 1), is("streams upstream ever", cp.Opened(), opened), is("main streams", cp.openedAs("main"), mains))
			})
			t.Logf("poison gone: updates after %v", updated())
			if err := first(e.Sound(), s.Sound(), p.Sound()); err != nil {
				t.Error(err)
			}
		})
	}
}
