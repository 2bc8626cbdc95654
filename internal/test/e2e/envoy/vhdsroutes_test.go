package envoy

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// hostWays are those by which virtual hosts come, which SotW has no words for.
var hostWays = []way{{relays: 1}, {}, {relays: 2}, {relays: 1, perType: true}, {perType: true}}

// putRoutes changes the route configuration of hostsOnDemand: its own virtual host says a text, others may come by VHDS.
func putRoutes(has world, m maker, text string, vhds bool) {
	r := &route.RouteConfiguration{Name: "web", VirtualHosts: []*route.VirtualHost{virtualHost("own", "own.example", saying(text))}}
	if vhds {
		r.Vhds = &route.Vhds{ConfigSource: m.source}
	}
	has.put(cache.Route, "web", r)
}

// becomes waits until a host is answered so.
func becomes(t *testing.T, address, name, answer string) {
	t.Helper()
	peer.Eventually(t, patience, func() error { return answers(address, answer, host(name+".example")) })
}

func noneFailed(t *testing.T, l *realenvoy.Load) {
	t.Helper()
	c := l.Stop()
	t.Log(c)
	if c.Failed() > 0 || c.Sent == 0 {
		t.Error("requests failed, or there were none")
	}
}

// A route configuration changes again and again, while requests are under way for virtual hosts that came on demand, and for
// ones that must be asked for first. None fails, and the Envoy keeps the hosts and does not ask again, whether the control plane
// sends them again or not (ORDER-9).
func TestVirtualHostsUnderChangedRoutes(t *testing.T) {
	for _, w := range atFirst(1, hostWays) {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, again=%v", w, again), func(t *testing.T) {
				t.Parallel()
				m := w.makes()
				s, address := hostsOnDemand(t, w, realenvoy.Backend(t, "a"))
				turns := often(70, 20)
				s.plane.Change(func(has world) {
					for i := range turns + 1 {
						putHost(has, fmt.Sprintf("%d.example", i), "host")
					}
				})
				s.clear()
				var hosts, n atomic.Int64
				hosts.Store(1)
				load := realenvoy.Drive(t, address, rate(), func(r *http.Request) {
					r.Host = fmt.Sprintf("%d.example", n.Add(1)%hosts.Load())
				})
				tick := time.Tick(100 * time.Millisecond)
				for turn := range turns {
					<-tick
					s.plane.Change(func(has world) {
						putRoutes(has, m, fmt.Sprintf("turn %d", turn+1), true)
						for name, r := range has[cache.VirtualHost] {
							if again {
								r.version = fmt.Sprint(turn)
								has[cache.VirtualHost][name] = r
							}
						}
					})
					hosts.Add(1)
				}
				becomes(t, address, "own", fmt.Sprintf("turn %d", turns))
				noneFailed(t, load)
				asked := 0
				for _, m := range s.tap.Since(s.mark) {
					if m.URL == cache.VirtualHost && !m.Response {
						asked += len(m.Names)
					}
				}
				// Two requests may need a host before its answer is there; an Envoy that lost hosts would ask at each turn.
				t.Logf("%d hosts, asked for %d times", turns, asked)
				if asked == 0 || asked > 2*turns {
					t.Error("hosts were asked for again, or not at all")
				}
			})
		}
	}
}

// A virtual host changes, and one goes and comes back, at the same moments as the route configuration.
func TestVirtualHostsChangeWithRoutes(t *testing.T) {
	for _, w := range atFirst(1, hostWays) {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			m := w.makes()
			s, address := hostsOnDemand(t, w, realenvoy.Backend(t, "a"))
			change := func(turn int, more func(world)) {
				s.plane.Change(func(has world) {
					putRoutes(has, m, fmt.Sprintf("turn %d", turn), true)
					putHost(has, "stays.example", fmt.Sprintf("turn %d", turn))
					more(has)
				})
			}
			comes := func(has world) { putHost(has, "goes.example", "there") }
			change(0, comes)
			becomes(t, address, "stays", "turn 0")
			becomes(t, address, "goes", "there")
			load := realenvoy.Drive(t, address, rate(), host("stays.example"))
			tick := time.Tick(100 * time.Millisecond)
			for turn := 1; turn < 2*often(20, 5); turn += 2 {
				<-tick
				change(turn, func(has world) { has.drop(cache.VirtualHost, "web/goes.example") })
				peer.Eventually(t, patience, func() error {
					_, failure := realenvoy.Get(address, host("goes.example"))
					return peer.Is("a host that has gone", failure[:min(len(failure), 3)], "404")
				})
				change(turn+1, comes)
				for name, answer := range map[string]string{"own": fmt.Sprintf("turn %d", turn+1), "stays": fmt.Sprintf("turn %d", turn+1), "goes": "there"} {
					becomes(t, address, name, answer)
				}
			}
			noneFailed(t, load)
		})
	}
}

// A route configuration loses its VHDS, and gets it back. The Envoy gives up the names, but when VHDS is back it has the virtual
// hosts that it had, however they have changed since, and does not ask for them. It does so directly, too.
func TestVirtualHostsWithoutVHDSForAWhile(t *testing.T) {
	for _, w := range atFirst(1, hostWays) {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			m := w.makes()
			s, address := hostsOnDemand(t, w, realenvoy.Backend(t, "a"))
			turn := func(text string, vhds bool) {
				t.Helper()
				s.plane.Change(func(has world) { putRoutes(has, m, text, vhds) })
				becomes(t, address, "own", text)
			}
			s.plane.Change(func(has world) {
				for _, name := range []string{"same", "changes", "later"} {
					putHost(has, name+".example", name)
				}
			})
			for _, name := range []string{"same", "changes"} {
				becomes(t, address, name, name)
			}
			for i := range often(20, 2) {
				turn(fmt.Sprintf("without %d", i), false)
				for _, name := range []string{"first", "same", "changes", "later"} {
					if _, failure := realenvoy.Get(address, host(name+".example")); failure[:min(len(failure), 3)] != "404" {
						t.Errorf("%s, without VHDS: %q", name, failure)
					}
				}
				s.plane.Change(func(has world) { putHost(has, "changes.example", fmt.Sprintf("changed %d", i)) })
				turn(fmt.Sprintf("with %d", i), true)
				for _, name := range []string{"first", "same", "changes"} {
					if err := answers(address, name, host(name+".example")); err != nil {
						t.Errorf("%s, with VHDS again: %v", name, err)
					}
				}
			}
			// What is asked for now is followed as ever.
			becomes(t, address, "later", "later")
			s.plane.Change(func(has world) { putHost(has, "later.example", "later again") })
			becomes(t, address, "later", "later again")
		})
	}
}
