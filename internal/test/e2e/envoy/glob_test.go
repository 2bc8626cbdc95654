package envoy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/loopback"
	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// Envoys here take their listeners and clusters from globs (NAME-11), and what these refer to has xdstp names, too.

// anyPort has the system choose a port.
const anyPort = "127.0.0.1:0"

// globbed are ways with so many relays.
func globbed(relays ...int) (all []way) {
	for _, n := range relays {
		all = append(all, way{relays: n})
	}
	return all
}

// Names of members, and of what these refer to.

func webAt(path string) string     { return at(cache.Listener, "web/"+path) }
func clusterAt(path string) string { return at(cache.Cluster, "web/"+path) }
func hostsAt(path string) string   { return at(cache.Endpoint, path) }
func routesAt(path string) string  { return at(cache.Route, path) }

// collections are the globs of the listeners and clusters below a path.
func collections(path string) (listeners, clusters string) {
	return at(cache.Listener, path+"/*"), at(cache.Cluster, path+"/*")
}

// globEnvoy starts an Envoy that takes listeners and clusters from the globs below a path.
func globEnvoy(t testing.TB, name, target, path string, changes ...func(realenvoy.Bootstrap)) *realenvoy.Envoy {
	t.Helper()
	b := realenvoy.ADS(realenvoy.Node{ID: name, Cluster: "e2e"}, realenvoy.Source{Target: target})
	resources := b["dynamic_resources"].(realenvoy.Object)
	resources["lds_resources_locator"], resources["cds_resources_locator"] = collections(path)
	for _, all := range []string{"cds_config", "lds_config"} {
		resources[all].(realenvoy.Object)["initial_fetch_timeout"] = fmt.Sprintf("%ds", never/time.Second)
	}
	for _, change := range changes {
		change(b)
	}
	return realenvoy.Start(t, b, realenvoy.Options{Name: name})
}

// inContext has an Envoy add its id to what it asks for as collections, as the parameter xds.node.id.
func inContext(b realenvoy.Bootstrap) { b["node_context_params"] = []string{"id"} }

// of adds the context parameter of an Envoy to the name of a member.
func of(envoy, member string) string { return member + "?xds.node.id=" + envoy }

// joined is the cluster of a name, with endpoints of an xdstp name.
func (m maker) joined(name, endpoints string) *cluster.Cluster {
	c := m.cluster(name)
	c.EdsClusterConfig.ServiceName = endpoints
	return c
}

// says is a listener that answers everything with a text. Of two listeners that ask the system for a port, Envoy gives
// the new one the port of another that drains, or is replaced; so one that changes has to have a port of its own.
func (m maker) says(name, address, text string) *listener.Listener {
	return m.listenerAt(name, address, "", func(h *hcm.HttpConnectionManager) {
		h.RouteSpecifier = &hcm.HttpConnectionManager_RouteConfig{RouteConfig: routes("own", saying(text))}
	})
}

// putService is what it takes to reach a backend through the listener web/main.
func (m maker) putService(has world, name, address string) {
	m.putCluster(has, name, address)
	has.put(cache.Listener, webAt("main"), m.listener(webAt("main"), routesAt("main")))
	has.put(cache.Route, routesAt("main"), routes(routesAt("main"), to(clusterAt(name))))
}

func (m maker) putCluster(has world, name, address string) {
	has.put(cache.Cluster, clusterAt(name), m.joined(clusterAt(name), hostsAt(name)))
	has.put(cache.Endpoint, hostsAt(name), endpoints(hostsAt(name), address))
}

// readyFor waits until a listener of an Envoy answers so.
func readyFor(t testing.TB, e *realenvoy.Envoy, member, answer string) (address string) {
	t.Helper()
	e.WaitReady(patience)
	address = listens(t, e, member)
	peer.Eventually(t, patience, func() error { return answers(address, answer) })
	return address
}

// noListener waits until an Envoy has no such listener, and nothing listens where it was.
func noListener(t testing.TB, e *realenvoy.Envoy, member, address string) {
	t.Helper()
	peer.Eventually(t, patience, func() error {
		if now, err := e.Address(member); err == nil {
			return fmt.Errorf("there is still a listener %s at %s", member, now)
		}
		if answer, failure := realenvoy.Get(address); failure == "" {
			return fmt.Errorf("%s still answers %q", address, answer)
		}
		return nil
	})
}

// holds complains unless an Envoy has just these listeners and clusters.
func holds(e *realenvoy.Envoy, listeners, clusters []string) error {
	d, err := e.Dump()
	if err != nil {
		return err
	}
	maps.DeleteFunc(d.Listeners, func(_ string, r realenvoy.Resource) bool { return len(r.Body) == 0 }) // it only drains
	same := func(what string, has map[string]realenvoy.Resource, want []string) error {
		return peer.Is(what, fmt.Sprint(slices.Sorted(maps.Keys(has))), fmt.Sprint(slices.Sorted(slices.Values(want))))
	}
	return peer.First(same("listeners", d.Listeners, listeners), same("clusters", d.Clusters, clusters))
}

// Members of both collections come, change and go, and no request fails. Without a relay that takes a control plane that
// waits until a cluster is acknowledged, since else a route comes before its cluster is warm.
func TestGlobMembers(t *testing.T) {
	for _, w := range globbed(0, 1, 2) {
		w.waits = w.relays == 0
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			m := w.makes()
			names := []string{"even", "odd"}
			backends := []string{realenvoy.Backend(t, "even"), realenvoy.Backend(t, "odd")}
			says, more := loopback.Reserve(t), loopback.Reserve(t)
			has := world{}
			m.putService(has, "even", backends[0])
			has.put(cache.Listener, webAt("says"), m.says(webAt("says"), says, "0"))
			// None of these is in the collection.
			for _, name := range []string{webAt("deeper/says"), at(cache.Listener, "other/says"), webAt("says") + "?k=v", "says"} {
				has.put(cache.Listener, name, m.says(name, anyPort, name))
			}
			s := play(t, w, has)
			e := globEnvoy(t, "envoy", s.tap.Addr, "web")
			load := realenvoy.Drive(t, readyFor(t, e, webAt("main"), "even"), rate())
			readyFor(t, e, webAt("says"), "0")
			for i := 1; i <= often(20, 4); i++ {
				now, before, text := names[i%2], names[(i+1)%2], strconv.Itoa(i)
				s.plane.Change(func(has world) {
					m.putCluster(has, now, backends[i%2])
					has.put(cache.Listener, webAt("says"), m.says(webAt("says"), says, text))
					has.put(cache.Listener, webAt("more"), m.says(webAt("more"), more, "more "+text))
					has.put(cache.Route, routesAt("main"), routes(routesAt("main"), to(clusterAt(now))))
				})
				peer.Eventually(t, patience, func() error {
					return peer.First(peer.Is("answer", load.Last(), now), answers(says, text), answers(more, "more "+text))
				})
				s.plane.Change(func(has world) {
					has.drop(cache.Cluster, clusterAt(before))
					has.drop(cache.Endpoint, hostsAt(before))
					has.drop(cache.Listener, webAt("more"))
				})
				noListener(t, e, webAt("more"), more)
				peer.Eventually(t, patience, func() error {
					return holds(e, []string{webAt("main"), webAt("says")}, []string{clusterAt(now)})
				})
			}
			unharmed(t, e, load)
			s.accepted()
		})
	}
}

// accepted fails the test if anything was rejected.
func (s *scene) accepted() {
	s.t.Helper()
	for _, r := range s.relays {
		if n := r.nacks(); n > 0 {
			s.t.Errorf("%d responses of a relay were rejected", n)
		}
	}
	for _, m := range s.tap.Since(0) {
		if m.Nack != "" {
			s.t.Errorf("the Envoy has rejected a response: %v", m)
		}
	}
}

// putReturning is a world for an Envoy that returns.
func (m maker) putReturning(t testing.TB, has world) (says string) {
	says = loopback.Reserve(t)
	m.putService(has, "a", realenvoy.Backend(t, "a"))
	has.put(cache.Listener, webAt("says"), m.says(webAt("says"), says, "says"))
	has.put(cache.Listener, webAt("leaves"), m.says(webAt("leaves"), loopback.Reserve(t), "leaves"))
	return says
}

// An Envoy whose stream is cut comes back and keeps its members. It brings no versions of them, and so is sent them
// again, without a relay, too, and takes them as what it has; of what is no collection it is told nothing. What is new
// and what has changed meanwhile arrives.
func TestGlobEnvoyReturns(t *testing.T) {
	for _, w := range globbed(0, 1, 2) {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			m := w.makes()
			has := world{}
			says := m.putReturning(t, has)
			s := play(t, w, has)
			e := globEnvoy(t, "envoy", s.tap.Addr, "web")
			load := realenvoy.Drive(t, readyFor(t, e, webAt("main"), "a"), rate())
			last := s.links[w.relays]
			for range often(10, 2) {
				s.clear()
				last.Cut()
				s.comesBack()
				s.isSentAgain(webAt("leaves"), webAt("main"), webAt("says"))
			}
			s.clear()
			last.Freeze()
			last.Cut()
			s.plane.Change(func(has world) {
				has.put(cache.Listener, webAt("says"), m.says(webAt("says"), says, "something else"))
				has.put(cache.Listener, webAt("comes"), m.says(webAt("comes"), anyPort, "comes"))
			})
			last.Thaw()
			s.comesBack()
			readyFor(t, e, webAt("comes"), "comes")
			peer.Eventually(t, patience, func() error { return answers(says, "something else") })
			s.isSentAgain(webAt("comes"), webAt("leaves"), webAt("main"), webAt("says"))
			unharmed(t, e, load)
			s.accepted()
			replaced(t, e, 1)
		})
	}
}

// comesBack waits until the Envoy has asked again for all that it had.
func (s *scene) comesBack() {
	s.t.Helper()
	for _, u := range []cache.TypeURL{cache.Cluster, cache.Endpoint, cache.Listener, cache.Route} {
		peer.Eventually(s.t, patience, func() error {
			for _, m := range s.tap.Since(s.mark) {
				if m.URL != u || m.Response || len(m.Names) == 0 {
					continue
				}
				if collection := u == cache.Cluster || u == cache.Listener; collection != (m.Known == 0) {
					s.t.Fatalf("%v: this Envoy brings versions of members, or none of others: it could be told what has left while it was away", m)
				}
				return nil
			}
			return fmt.Errorf("the Envoy has not come back for %s", u.Short())
		})
	}
}

// isSentAgain checks that since clear the Envoy was sent these listeners and the cluster, each once, and nothing else.
func (s *scene) isSentAgain(listeners ...string) {
	s.t.Helper()
	want := []string{"CDS +" + clusterAt("a")}
	for _, name := range listeners {
		want = append(want, "LDS +"+name)
	}
	is := func() error {
		told := s.told()
		slices.Sort(told)
		return peer.Is("what the Envoy was told", fmt.Sprint(told), fmt.Sprint(want))
	}
	peer.Eventually(s.t, patience, is)
	peer.Throughout(s.t, 500*time.Millisecond, is)
}

// replaced fails the test unless an Envoy has replaced so many listeners, and removed none.
func replaced(t testing.TB, e *realenvoy.Envoy, n int64) {
	t.Helper()
	stats, err := e.Stats(`^listener_manager\.listener_(modified|in_place_updated|removed)$`)
	if err != nil {
		t.Fatal(err)
	}
	const all = "listener_manager.listener_"
	if got := stats[all+"modified"]; got != n || stats[all+"removed"] > 0 {
		t.Errorf("%d listeners were replaced, not %d: %v", got, n, stats)
	}
}

// A relay is killed while the control plane is away, and comes back with what it had written down. Its Envoy keeps its
// members, a new one gets them, and what has changed meanwhile arrives with the control plane: also that one has left,
// of which an Envoy without a relay would not hear.
func TestGlobSnapshot(t *testing.T) {
	w := way{relays: 1}
	realenvoy.Need(t)
	t.Parallel()
	m := w.makes()
	has := world{}
	m.putReturning(t, has)
	plane := newPlane(t, has).Start()
	r := startProcess(t, plane.addr, "cache.snapshot.dir="+privateDir(t), "cache.snapshot.interval=100ms")
	s := &scene{t: t, way: w, plane: plane, tap: peer.StartTap(t, "what the Envoys said and heard", r.Addr, peer.TapOptions{})}
	e := globEnvoy(t, "envoy", s.tap.Addr, "web")
	load := realenvoy.Drive(t, readyFor(t, e, webAt("main"), "a"), rate())
	leaves := readyFor(t, e, webAt("leaves"), "leaves")
	for range often(5, 1) {
		peer.Wait(500 * time.Millisecond) // it is written down
		plane.Stop()
		r.Kill()
		s.clear()
		r.Start()
		s.comesBack()
		s.isSentAgain(webAt("leaves"), webAt("main"), webAt("says"))
		tap := peer.StartTap(t, "what the new Envoy said and heard", r.Addr, peer.TapOptions{})
		newcomer := globEnvoy(t, "newcomer", tap.Addr, "web")
		newcomer.WaitReady(patience)
		if err := holds(newcomer, []string{webAt("leaves"), webAt("main"), webAt("says")}, []string{clusterAt("a")}); err != nil {
			t.Error(err)
		}
		newcomer.Kill()
		s.clear()
		plane.Start()
		peer.Throughout(t, time.Second, func() error { return peer.Is("what the Envoy was told", fmt.Sprint(s.told()), "[]") })
	}
	plane.Stop()
	plane.Change(func(has world) {
		has.drop(cache.Listener, webAt("leaves"))
		has.put(cache.Listener, webAt("comes"), m.says(webAt("comes"), anyPort, "comes"))
	})
	r.Kill()
	s.clear()
	r.Start()
	s.comesBack()
	s.isSentAgain(webAt("leaves"), webAt("main"), webAt("says"))
	plane.Start()
	readyFor(t, e, webAt("comes"), "comes")
	noListener(t, e, webAt("leaves"), leaves)
	unharmed(t, e, load)
}

// Collections without members: the Envoy is ready, and takes what comes then, and its end.
func TestGlobEmpty(t *testing.T) {
	for _, w := range globbed(0, 1, 2) {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			s := play(t, w, world{})
			e := globEnvoy(t, "envoy", s.tap.Addr, "web")
			e.WaitReady(patience)
			if err := holds(e, nil, nil); err != nil {
				t.Error(err)
			}
			m := w.makes()
			s.plane.Change(func(has world) { m.putService(has, "a", realenvoy.Backend(t, "a")) })
			address := readyFor(t, e, webAt("main"), "a")
			s.plane.Change(func(has world) {
				has.drop(cache.Listener, webAt("main"))
				has.drop(cache.Cluster, clusterAt("a"))
			})
			noListener(t, e, webAt("main"), address)
			peer.Eventually(t, patience, func() error { return holds(e, nil, nil) })
		})
	}
}

// TestGlobContext: each Envoy gets the collection of its own context. One whose context the control plane does not know gets
// no resources, and becomes ready. Neither sees what is in the other's collection. The same holds if the control plane does
// not answer for the unknown one: the Envoy then becomes ready when its own timeout ends, or that of the relay.
func TestGlobContext(t *testing.T) {
	for _, w := range globbed(0, 1, 2) {
		for _, silent := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, silent=%v", w, silent), func(t *testing.T) {
				t.Parallel()
				m := w.makes()
				has := world{}
				m.putService(has, "a", realenvoy.Backend(t, "a"))
				owns := loopback.Reserve(t)
				own, anothers := of("known", webAt("own")), of("another", webAt("own"))
				has.put(cache.Listener, own, m.says(own, owns, "known"))
				has.put(cache.Listener, anothers, m.says(anothers, anyPort, "another"))
				s := play(t, w, has, "timers.dne_timeout=2s", "timers.dne_timeout_explicit=2s")
				s.plane.silentOnEmptyGlobs = silent
				plain := globEnvoy(t, "plain", s.tap.Addr, "web")
				address := readyFor(t, plain, webAt("main"), "a")
				load := realenvoy.Drive(t, address, rate())
				known := globEnvoy(t, "known", s.tap.Addr, "web", inContext, waits("2s"))
				readyFor(t, known, own, "known")
				unknown := globEnvoy(t, "unknown", s.tap.Addr, "web", inContext, waits("2s"))
				unknown.WaitReady(patience)
				s.plane.Change(func(has world) {
					has.put(cache.Listener, own, m.says(own, owns, "known, changed"))
					has.put(cache.Listener, webAt("more"), m.says(webAt("more"), anyPort, "more"))
				})
				readyFor(t, plain, webAt("more"), "more")
				peer.Eventually(t, patience, func() error { return answers(owns, "known, changed") })
				for e, listeners := range map[*realenvoy.Envoy][]string{
					plain: {webAt("main"), webAt("more")}, known: {own}, unknown: nil,
				} {
					clusters := []string{clusterAt("a")}
					if e != plain {
						clusters = nil
					}
					if err := holds(e, listeners, clusters); err != nil {
						t.Error(err)
					}
				}
				unharmed(t, plain, load)
			})
		}
	}
}

// A control plane may name its members with context parameters in an order of its own. An Envoy knows each listener and
// cluster by that very name, and so has to be told in the same spelling that it is gone.
func TestGlobSpelling(t *testing.T) {
	for _, w := range globbed(0, 1, 2) {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			m := w.makes()
			spelled := func(name string) string { return name + "?xds.node.id=envoy&xds.node.cluster=e2e" }
			stays, leaves, cluster := spelled(webAt("stays")), spelled(webAt("leaves")), spelled(clusterAt("leaves"))
			says := loopback.Reserve(t)
			has := world{}
			has.put(cache.Listener, stays, m.says(stays, says, "0"))
			has.put(cache.Listener, leaves, m.says(leaves, anyPort, "leaves"))
			has.put(cache.Cluster, cluster, m.joined(cluster, hostsAt("leaves")))
			has.put(cache.Endpoint, hostsAt("leaves"), endpoints(hostsAt("leaves"), "127.0.0.1:1"))
			s := play(t, w, has)
			e := globEnvoy(t, "envoy", s.tap.Addr, "web", func(b realenvoy.Bootstrap) { b["node_context_params"] = []string{"id", "cluster"} })
			readyFor(t, e, stays, "0")
			address := readyFor(t, e, leaves, "leaves")
			if err := holds(e, []string{stays, leaves}, []string{cluster}); err != nil {
				t.Error(err)
			}
			s.plane.Change(func(has world) {
				has.put(cache.Listener, stays, m.says(stays, says, "1"))
				has.drop(cache.Listener, leaves)
				has.drop(cache.Cluster, cluster)
			})
			peer.Eventually(t, patience, func() error { return answers(says, "1") })
			noListener(t, e, leaves, address)
			peer.Eventually(t, patience, func() error { return holds(e, []string{stays}, nil) })
			s.accepted()
		})
	}
}

// waits has an Envoy wait so long for its collections.
func waits(long string) func(realenvoy.Bootstrap) {
	return func(b realenvoy.Bootstrap) {
		for _, all := range []string{"cds_config", "lds_config"} {
			b["dynamic_resources"].(realenvoy.Object)[all].(realenvoy.Object)["initial_fetch_timeout"] = long
		}
	}
}
