package envoy

import (
	"fmt"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ondemand "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/on_demand/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// extended is a listener with a filter whose configuration is the extension "filter".
func (m maker) extended(name, routeName string) proto.Message {
	return m.listener(name, routeName, func(h *hcm.HttpConnectionManager) {
		h.HttpFilters = append([]*hcm.HttpFilter{{
			Name: "filter",
			ConfigType: &hcm.HttpFilter_ConfigDiscovery{ConfigDiscovery: &core.ExtensionConfigSource{
				ConfigSource: m.source, TypeUrls: []string{typeOf(&ondemand.OnDemand{})},
			}},
		}}, h.HttpFilters...)
	})
}

func typeOf(m proto.Message) string { return mustAny(m).GetTypeUrl() }

func extension(name string) *core.TypedExtensionConfig {
	return &core.TypedExtensionConfig{Name: name, TypedConfig: mustAny(&ondemand.OnDemand{})}
}

// Something that a new Envoy needs does not exist, and the control plane says nothing
// about it. No Envoy waits longer than it would without a relay, and it has it when it is
// made (MISS-3, MISS-9).
func TestMissing(t *testing.T) {
	for i, what := range []struct {
		url  cache.TypeURL
		name string
		// lacking changes a world so that it lacks it, and made returns it.
		lacking func(maker, world)
		made    func(maker, *identity, string) proto.Message
	}{
		{
			cache.Route, "web",
			func(_ maker, has world) { has.drop(cache.Route, "web") },
			func(maker, *identity, string) proto.Message { return routes("web", to("a")) },
		},
		{
			cache.Endpoint, "a",
			func(_ maker, has world) { has.drop(cache.Endpoint, "a") },
			func(_ maker, _ *identity, backend string) proto.Message { return endpoints("a", backend) },
		},
		{
			cache.Extension, "filter",
			func(m maker, has world) { has.put(cache.Listener, "web", m.extended("web", "web")) },
			func(maker, *identity, string) proto.Message { return extension("filter") },
		},
		{
			cache.Secret, "cert",
			func(m maker, has world) { has.put(cache.Listener, "web", m.secured("web", "web", "cert")) },
			func(_ maker, id *identity, _ string) proto.Message { return id.secret("cert") },
		},
	} {
		ways := variants(way{relays: 1})
		if !long() {
			ways = ways[i%2:][:1] // they take turns
		}
		for _, w := range ways {
			t.Run(fmt.Sprintf("%s, %v", what.url.Short(), w), func(t *testing.T) {
				t.Parallel()
				m := w.makes().impatient()
				backend := realenvoy.Backend(t, "a")
				has := m.service("a", backend)
				what.lacking(m, has)
				sets := []string{"groups.secrets=shared"}
				if !long() {
					sets = append(sets, "timers.dne_timeout=3s") // the relay is the first to lose patience
				}
				s := play(t, w, has, sets...)
				e := s.envoy("envoy")
				t.Logf("ready after %v", e.WaitReady(envoysOwn+slack))
				// To this one the relay can say at once that there is none.
				t.Logf("the second after %v", s.envoy("second").WaitReady(envoysOwn+slack))
				address := listens(t, e, "web")
				id := newIdentity(t, 1)
				s.plane.Change(func(has world) { has.put(what.url, what.name, what.made(m, id, backend)) })
				peer.Eventually(t, patience, func() error {
					if what.url == cache.Secret {
						return id.presentedAt(address)
					}
					return answers(address, "a")
				})
			})
		}
	}
}
