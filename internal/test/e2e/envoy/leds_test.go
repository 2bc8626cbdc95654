package envoy

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// hostAt is the name of one endpoint of a cluster.
func hostAt(name string) string { return at(cache.LocalityHost, "hosts/"+name) }

// collected are endpoints of a cluster that come from the globs below paths, each a locality.
func (m maker) collected(name string, paths ...string) *endpoint.ClusterLoadAssignment {
	all := &endpoint.ClusterLoadAssignment{ClusterName: name}
	for _, path := range paths {
		all.Endpoints = append(all.Endpoints, &endpoint.LocalityLbEndpoints{
			Locality:            &core.Locality{Zone: path},
			LoadBalancingWeight: wrapperspb.UInt32(1),
			LbConfig: &endpoint.LocalityLbEndpoints_LedsClusterLocalityConfig{LedsClusterLocalityConfig: &endpoint.LedsClusterLocalityConfig{
				LedsConfig: m.source, LedsCollectionName: at(cache.LocalityHost, path+"/*"),
			}},
		})
	}
	return all
}

// oneHost is one endpoint.
func oneHost(address string, weight uint32) *endpoint.LbEndpoint {
	return &endpoint.LbEndpoint{
		HostIdentifier:      &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{Address: socketAddress(address)}},
		LoadBalancingWeight: wrapperspb.UInt32(weight),
	}
}

// hosts complains unless an Envoy has these endpoints of the cluster "a".
func hosts(e *realenvoy.Envoy, want ...string) error {
	all, err := e.Clusters()
	if err != nil {
		return err
	}
	has, there := all["a"]
	if !there {
		return errors.New("there is no cluster")
	}
	slices.Sort(has)
	slices.Sort(want)
	return peer.Is("endpoints", fmt.Sprint(has), fmt.Sprint(want))
}

// The endpoints of a cluster come one by one, from collections (LEDS): they come, change and go, and no request fails.
// Everything else comes as usual.
func TestLEDS(t *testing.T) {
	for _, w := range globbed(0, 1, 2) {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			m := w.makes()
			backends := make(map[string]string)
			for _, name := range []string{"a", "b", "c", "d"} {
				backends[name] = realenvoy.Backend(t, name)
			}
			has := m.service("a")
			has.put(cache.Endpoint, "a", m.collected("a", "hosts", "more"))
			for _, name := range []string{"a", "b"} {
				has.put(cache.LocalityHost, hostAt(name), oneHost(backends[name], 1))
			}
			has.put(cache.LocalityHost, hostAt("deeper/d"), oneHost(backends["d"], 1)) // it is not in the collection
			s := play(t, w, has)
			e := s.envoy("envoy")
			e.WaitReady(patience)
			address := listens(t, e, "web")
			is := func(names ...string) {
				t.Helper()
				var want []string
				for _, name := range names {
					want = append(want, backends[name])
				}
				peer.Eventually(t, patience, func() error { return hosts(e, want...) })
			}
			is("a", "b")
			load := realenvoy.Drive(t, address, 300)
			more := at(cache.LocalityHost, "more/d")
			for i := range often(20, 3) {
				s.plane.Change(func(has world) {
					has.put(cache.LocalityHost, hostAt("c"), oneHost(backends["c"], 1))
					has.put(cache.LocalityHost, more, oneHost(backends["d"], 1))
				})
				is("a", "b", "c", "d")
				s.plane.Change(func(has world) {
					has.drop(cache.LocalityHost, hostAt("a"))
					has.put(cache.LocalityHost, hostAt("b"), oneHost(backends["b"], uint32(i+2)))
				})
				is("b", "c", "d")
				peer.Eventually(t, patience, func() error {
					text, err := e.Get("/clusters")
					if err != nil {
						return err
					}
					if weight := "a::" + backends["b"] + "::weight::" + strconv.Itoa(i+2); !strings.Contains(text, weight) {
						return fmt.Errorf("no %s in %s", weight, text)
					}
					return nil
				})
				// One endpoint gets another address.
				s.plane.Change(func(has world) { has.put(cache.LocalityHost, hostAt("b"), oneHost(backends["a"], 1)) })
				is("a", "c", "d")
				s.plane.Change(func(has world) {
					has.put(cache.LocalityHost, hostAt("a"), oneHost(backends["a"], 1))
					has.put(cache.LocalityHost, hostAt("b"), oneHost(backends["b"], 1))
					has.drop(cache.LocalityHost, hostAt("c"))
					has.drop(cache.LocalityHost, more)
				})
				is("a", "b")
			}
			unharmed(t, e, load)
			s.accepted()
			last := s.links[w.relays]
			s.clear()
			last.Cut()
			peer.Eventually(t, patience, func() error {
				if !slices.Contains(s.told(), cache.LocalityHost.Short()+" +"+hostAt("a")) {
					return errors.New("the Envoy has not come back")
				}
				return nil
			})
			is("a", "b")
		})
	}
}
