package envoy

import (
	"fmt"
	"net/http"
	"testing"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	ondemand "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/on_demand/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// onDemand adds the filter that waits for what a request needs.
func onDemand(config *ondemand.OnDemand) func(*hcm.HttpConnectionManager) {
	return func(h *hcm.HttpConnectionManager) {
		h.HttpFilters = append([]*hcm.HttpFilter{{
			Name:       "envoy.filters.http.on_demand",
			ConfigType: &hcm.HttpFilter_TypedConfig{TypedConfig: mustAny(config)},
		}}, h.HttpFilters...)
	}
}

func host(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }

func header(key, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(key, value) }
}

// putHost adds a virtual host that answers a request for its name with a text.
func putHost(has world, name, text string) {
	// By this name, and not by the resource's, an Envoy finds what is to go.
	has.put(cache.VirtualHost, "web/"+name, virtualHost("web/"+name, name, saying(text)))
	r := has[cache.VirtualHost]["web/"+name]
	r.aliases = []string{"web/" + name}
	has[cache.VirtualHost]["web/"+name] = r
}

// hostsOnDemand starts an Envoy that asks for virtual hosts when a request needs them. There is a first one, without
// which it would not be ready.
func hostsOnDemand(t *testing.T, w way, backend string) (s *scene, address string) {
	t.Helper()
	m := w.makes()
	has := m.service("a", backend)
	has.put(cache.Listener, "web", m.listener("web", "web", onDemand(&ondemand.OnDemand{})))
	putRoutes(has, m, "own", true)
	putHost(has, "first.example", "first")
	s = play(t, w, has)
	s.plane.onDemand = func(u cache.TypeURL, name string) bool { return u == cache.VirtualHost && name != "web/first.example" }
	s.plane.tellsMissing = true
	e := s.envoy("envoy")
	e.WaitReady(patience)
	return s, listens(t, e, "web")
}

// clustersOnDemand starts an Envoy that asks for a cluster when a request names it. It has cluster a.
func clustersOnDemand(t *testing.T, w way, backend string) (s *scene, address string) {
	t.Helper()
	m := w.makes()
	has := m.service("a", backend)
	has.put(cache.Listener, "web", m.listener("web", "web", onDemand(&ondemand.OnDemand{
		Odcds: &ondemand.OnDemandCds{Source: m.source, Timeout: durationpb.New(patience)},
	})))
	byHeader := to("")
	byHeader.GetRoute().ClusterSpecifier = &route.RouteAction_ClusterHeader{ClusterHeader: "x-cluster"}
	has.put(cache.Route, "web", routes("web", byHeader))
	s = play(t, w, has)
	s.plane.tellsMissing = true
	s.plane.onDemand = func(u cache.TypeURL, name string) bool { return u == cache.Cluster && name != "a" }
	e := s.envoy("envoy")
	e.WaitReady(patience)
	return s, listens(t, e, "web")
}

// Virtual hosts come when a request needs them (VHDS), change, and go; one that does not
// exist is no reason to wait.
func TestVirtualHostsOnDemand(t *testing.T) {
	for relays := range 3 {
		t.Run(way{relays: relays}.String(), func(t *testing.T) {
			t.Parallel()
			s, address := hostsOnDemand(t, way{relays: relays}, realenvoy.Backend(t, "a"))
			s.plane.Change(func(has world) {
				putHost(has, "one.example", "one")
				putHost(has, "two.example", "two")
			})
			for _, name := range []string{"first", "one", "two", "one"} {
				if answer, failure := realenvoy.Get(address, host(name+".example")); answer != name {
					t.Errorf("%s: %q %s", name, answer, failure)
				}
			}
			if answer, failure := realenvoy.Get(address, host("none.example")); failure[:min(len(failure), 3)] != "404" {
				t.Errorf("a host that does not exist: %q %s", answer, failure)
			}
			s.plane.Change(func(has world) {
				putHost(has, "one.example", "one again")
				putHost(has, "none.example", "none")
				has.drop(cache.VirtualHost, "web/two.example")
			})
			for name, want := range map[string]string{"one": "one again", "none": "none"} {
				peer.Eventually(t, patience, func() error {
					answer, failure := realenvoy.Get(address, host(name+".example"))
					if answer != want {
						return fmt.Errorf("%s: %q %s", name, answer, failure)
					}
					return nil
				})
			}
			peer.Eventually(t, patience, func() error {
				_, failure := realenvoy.Get(address, host("two.example"))
				return peer.Is("a host that has gone", failure[:min(len(failure), 3)], "404")
			})
		})
	}
}

// Clusters come when a request needs them (ODCDS), while others come by the wildcard.
func TestClustersOnDemand(t *testing.T) {
	for relays := range 3 {
		t.Run(way{relays: relays}.String(), func(t *testing.T) {
			t.Parallel()
			w := way{relays: relays}
			m := w.makes()
			s, address := clustersOnDemand(t, w, realenvoy.Backend(t, "a"))
			for _, name := range []string{"b", "c"} {
				backend := realenvoy.Backend(t, name)
				s.plane.Change(func(has world) {
					has.put(cache.Cluster, name, m.cluster(name))
					has.put(cache.Endpoint, name, endpoints(name, backend))
				})
			}
			for _, name := range []string{"a", "b", "c", "a"} {
				if answer, failure := realenvoy.Get(address, header("x-cluster", name)); answer != name {
					t.Errorf("%s: %q %s", name, answer, failure)
				}
			}
			if answer, failure := realenvoy.Get(address, header("x-cluster", "none")); failure[:min(len(failure), 3)] != "503" {
				t.Errorf("a cluster that does not exist: %q %s", answer, failure)
			}
		})
	}
}
