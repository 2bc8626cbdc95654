package envoy

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/loopback"
	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// renaming is a resource that gets another name, again and again, and keeps what only one
// can have: an address, a key, a domain. An Envoy rejects the new one unless it is told in
// the same response that the old one is gone (R33, ORDER-2). Each new one has routes to
// another cluster.
type renaming struct {
	what string
	// puts the n-th in place of the one before, with a route.
	puts func(m maker, has world, address string, n int, to *route.Route)
	// asks makes a request one for it.
	asks func(*http.Request)
	// swap is how many requests may fail at each turn, relay or not.
	swap int
}

// numbered is the name of the n-th.
func numbered(what string, n int) string { return what + "-" + strconv.Itoa(n) }

// A listener keeps its address. A new one that has the name of its routes for the first
// time warms until it has these.
func TestListenerRenamed(t *testing.T) {
	r := renaming{
		what: "listener",
		puts: func(m maker, has world, address string, n int, to *route.Route) {
			routeName := numbered("routes", n/2)
			has.drop(cache.Listener, numbered("listener", n-1))
			has.put(cache.Listener, numbered("listener", n), m.listenerAt(numbered("listener", n), address, routeName))
			has.drop(cache.Route, numbered("routes", n/2-1))
			has.put(cache.Route, routeName, routes(routeName, to))
		},
		asks: func(*http.Request) {},
	}
	r.play(t, atFirst(3, bothPlanes(), translated(way{relays: 1, waits: true})))
}

// A scope keeps its key. An Envoy has none for an instant when it takes the new one, so that
// a request may find no route: 0 to 12 did in 100 turns without a relay. (With routes of
// another name it has none until these come, relay or not.)
func TestScopeRenamed(t *testing.T) {
	r := renaming{
		what: "scope",
		puts: func(m maker, has world, address string, n int, to *route.Route) {
			has.put(cache.Listener, "web", m.listenerAt("web", address, "", m.scoped()))
			has.drop(cache.ScopedRoute, numbered("scope", n-1))
			has.put(cache.ScopedRoute, numbered("scope", n), scope(numbered("scope", n), "key", "web"))
			has.put(cache.Route, "web", routes("web", to))
		},
		asks: header("x-scope", "key"),
		swap: 1,
	}
	r.play(t, atFirst(3, bothPlanes(), translated(way{relays: 1, waits: true})))
}

// A virtual host keeps its domain. Delta alone has them.
func TestVirtualHostRenamed(t *testing.T) {
	r := renaming{
		what: "host",
		puts: func(m maker, has world, address string, n int, to *route.Route) {
			name := func(n int) string { return "web/" + numbered("host", n) }
			has.put(cache.Listener, "web", m.listenerAt("web", address, "web"))
			has.put(cache.Route, "web", &route.RouteConfiguration{Name: "web", Vhds: &route.Vhds{ConfigSource: m.source}})
			has.drop(cache.VirtualHost, name(n-1))
			has.put(cache.VirtualHost, name(n), virtualHost(name(n), "one.example", to))
		},
		asks: host("one.example"),
	}
	r.play(t, []way{{relays: 1, waits: true}, {relays: 2, waits: true}})
}

// bothPlanes are both variants, through one relay and two, with both control planes.
func bothPlanes() []way {
	return slices.Concat(
		oneLanguage(way{relays: 1, waits: true}), oneLanguage(way{relays: 2, snapshots: true}),
		oneLanguage(way{relays: 2, waits: true}), oneLanguage(way{relays: 1, snapshots: true}),
	)
}

func (r renaming) play(t *testing.T, ways []way) {
	for _, w := range ways {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			r.turns(t, w)
		})
	}
}

// turns renames it under load, and cuts a connection in two turns of three: before the
// change, so that it is made while a relay or the Envoy is away, or while it is on its way.
func (r renaming) turns(t *testing.T, w way) {
	t.Helper()
	realenvoy.Need(t)
	m := w.makes()
	backends := []string{realenvoy.Backend(t, "even"), realenvoy.Backend(t, "odd")}
	names := []string{"even", "odd"}
	address := loopback.Reserve(t)
	next := func(has world, n int) {
		// A cluster comes a turn before it is used, and goes a turn after that: for what is
		// used at once, or still, there is TestRouteTurn.
		for i := n; i <= n+1; i++ {
			has.put(cache.Cluster, numbered("cluster", i), m.cluster(numbered("cluster", i)))
			has.put(cache.Endpoint, numbered("cluster", i), endpoints(numbered("cluster", i), backends[i%2]))
		}
		has.drop(cache.Cluster, numbered("cluster", n-2))
		has.drop(cache.Endpoint, numbered("cluster", n-2))
		r.puts(m, has, address, n, to(numbered("cluster", n)))
	}
	has := world{}
	next(has, 0)
	s := play(t, w, has)
	e := s.envoy("envoy")
	e.WaitReady(patience)
	peer.Eventually(t, patience, func() error { return answers(address, names[0], r.asks) })
	peer.Eventually(t, patience, func() error { return r.settled(e, 0) })
	load := realenvoy.Drive(t, address, renamedRate, r.asks, once)
	defer func() { r.judge(t, s, e, load) }() // a turn that fails, too
	var took []time.Duration
	for n := 1; n <= often(100, 5); n++ {
		link := s.links[n/3%len(s.links)]
		if n%3 == 1 {
			link.Cut()
		}
		if n%2 == 1 {
			// The routes of the old one change a moment before.
			s.change(func(has world) { r.puts(m, has, address, n-1, to(numbered("cluster", n))) })
		}
		s.change(func(has world) { next(has, n) })
		if n%3 == 2 {
			link.Cut()
		}
		took = append(took, peer.Eventually(t, patience, func() error {
			if err := peer.Is(fmt.Sprintf("answer of turn %d", n), load.Last(), names[n%2]); err != nil {
				return err
			}
			return r.settled(e, n)
		}))
	}
	slices.Sort(took)
	t.Logf("%v: %d turns in %v (median) to %v", w, len(took), took[len(took)/2], took[len(took)-1])
}

// settled complains if an Envoy does not have the n-th, or the next one's cluster is not
// warm. (A connection cut while the cluster of a new route warms costs requests, relay or
// not: an Envoy says nothing of clusters until then, and is answered its routes.)
func (r renaming) settled(e *realenvoy.Envoy, n int) error {
	text, err := e.Get("/config_dump")
	if err != nil {
		return err
	}
	if !strings.Contains(text, numbered(r.what, n)+`"`) {
		return fmt.Errorf("the Envoy has no %s", numbered(r.what, n))
	}
	d, err := e.Dump()
	if err != nil {
		return err
	}
	if c, there := d.Clusters[numbered("cluster", n+1)]; !there || c.Warming {
		return fmt.Errorf("the Envoy has no %s yet", numbered("cluster", n+1))
	}
	return nil
}

// renamedRate is smaller than rate: none of these requests shares a connection.
const renamedRate = 50

// once has a request use a connection of its own, which nobody uses again. It is sent once.
func once(r *http.Request) { r.Close = true }

// judge fails the test if the Envoy has rejected anything, or more requests have failed
// than may.
func (r renaming) judge(t *testing.T, s *scene, e *realenvoy.Envoy, load *realenvoy.Load) {
	t.Helper()
	c := load.Stop()
	t.Log(c)
	if c.Failed() > r.swap*often(100, 5) || c.Sent == 0 {
		t.Errorf("requests failed: %v", c)
	}
	if n, err := e.Sum("update_rejected", "listener_create_failure"); err != nil || n > 0 {
		t.Errorf("the Envoy has rejected %d updates: %v", n, err)
	}
	for _, said := range s.tap.Since(0) {
		if said.Nack != "" {
			t.Errorf("%v", said)
		}
	}
	for i, relay := range s.relays {
		if n := relay.nacks(); n > 0 {
			t.Errorf("the metrics of relay %d count %d NACKs", i+1, n)
		}
	}
}

// scoped has routes taken from scopes, by a header of the request.
func (m maker) scoped() func(*hcm.HttpConnectionManager) {
	return func(h *hcm.HttpConnectionManager) {
		type (
			builder   = hcm.ScopedRoutes_ScopeKeyBuilder
			fragment  = hcm.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder
			extractor = hcm.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder_HeaderValueExtractor
		)
		h.RouteSpecifier = &hcm.HttpConnectionManager_ScopedRoutes{ScopedRoutes: &hcm.ScopedRoutes{
			Name: "scopes",
			ScopeKeyBuilder: &builder{Fragments: []*fragment{{
				Type: &hcm.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder_HeaderValueExtractor_{HeaderValueExtractor: &extractor{
					Name:        "x-scope",
					ExtractType: &hcm.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder_HeaderValueExtractor_Index{},
				}},
			}}},
			RdsConfigSource: m.source,
			ConfigSpecifier: &hcm.ScopedRoutes_ScopedRds{ScopedRds: &hcm.ScopedRds{ScopedRdsConfigSource: m.source}},
		}}
	}
}

// scope is one that requests with a key find their routes by.
func scope(name, key, routeName string) *route.ScopedRouteConfiguration {
	return &route.ScopedRouteConfiguration{
		Name: name, RouteConfigurationName: routeName,
		Key: &route.ScopedRouteConfiguration_Key{Fragments: []*route.ScopedRouteConfiguration_Key_Fragment{{
			Type: &route.ScopedRouteConfiguration_Key_Fragment_StringKey{StringKey: key},
		}}},
	}
}
