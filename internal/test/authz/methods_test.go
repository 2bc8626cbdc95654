package authz_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/xds-relay/xds-relay/cache"
)

// What keeps a method from giving a client what is not its own.
const (
	byTheDoor   = "names enter its subscription by the door (NODE-15)"
	noResources = "it knows no resources"
)

// meant has a row for each gRPC method that is served.
var meant = map[string]string{
	"grpc.health.v1.Health/Check": noResources,
	"grpc.health.v1.Health/List":  noResources,
	"grpc.health.v1.Health/Watch": noResources,

	"envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources":  byTheDoor,
	"envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources": byTheDoor,

	"envoy.service.listener.v3.ListenerDiscoveryService/DeltaListeners":  byTheDoor,
	"envoy.service.listener.v3.ListenerDiscoveryService/StreamListeners": byTheDoor,
	"envoy.service.listener.v3.ListenerDiscoveryService/FetchListeners":  byTheDoor,

	"envoy.service.route.v3.RouteDiscoveryService/DeltaRoutes":               byTheDoor,
	"envoy.service.route.v3.RouteDiscoveryService/StreamRoutes":              byTheDoor,
	"envoy.service.route.v3.RouteDiscoveryService/FetchRoutes":               byTheDoor,
	"envoy.service.route.v3.ScopedRoutesDiscoveryService/DeltaScopedRoutes":  byTheDoor,
	"envoy.service.route.v3.ScopedRoutesDiscoveryService/StreamScopedRoutes": byTheDoor,
	"envoy.service.route.v3.ScopedRoutesDiscoveryService/FetchScopedRoutes":  byTheDoor,
	"envoy.service.route.v3.VirtualHostDiscoveryService/DeltaVirtualHosts":   byTheDoor,

	"envoy.service.cluster.v3.ClusterDiscoveryService/DeltaClusters":  byTheDoor,
	"envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters": byTheDoor,
	"envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters":  byTheDoor,

	"envoy.service.endpoint.v3.EndpointDiscoveryService/DeltaEndpoints":                 byTheDoor,
	"envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints":                byTheDoor,
	"envoy.service.endpoint.v3.EndpointDiscoveryService/FetchEndpoints":                 byTheDoor,
	"envoy.service.endpoint.v3.LocalityEndpointDiscoveryService/DeltaLocalityEndpoints": byTheDoor,

	"envoy.service.secret.v3.SecretDiscoveryService/DeltaSecrets":  byTheDoor,
	"envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets": byTheDoor,
	"envoy.service.secret.v3.SecretDiscoveryService/FetchSecrets":  byTheDoor,

	"envoy.service.runtime.v3.RuntimeDiscoveryService/DeltaRuntime":  byTheDoor,
	"envoy.service.runtime.v3.RuntimeDiscoveryService/StreamRuntime": byTheDoor,
	"envoy.service.runtime.v3.RuntimeDiscoveryService/FetchRuntime":  byTheDoor,

	"envoy.service.extension.v3.ExtensionConfigDiscoveryService/DeltaExtensionConfigs":  byTheDoor,
	"envoy.service.extension.v3.ExtensionConfigDiscoveryService/StreamExtensionConfigs": byTheDoor,
	"envoy.service.extension.v3.ExtensionConfigDiscoveryService/FetchExtensionConfigs":  byTheDoor,
}

// typesOf says which type a service is for; ADS is asked for Secrets.
var typesOf = map[string]cache.TypeURL{
	"AggregatedDiscoveryService": cache.Secret, "ListenerDiscoveryService": cache.Listener, "RouteDiscoveryService": cache.Route,
	"ScopedRoutesDiscoveryService": cache.ScopedRoute, "VirtualHostDiscoveryService": cache.VirtualHost, "ClusterDiscoveryService": cache.Cluster,
	"EndpointDiscoveryService": cache.Endpoint, "LocalityEndpointDiscoveryService": cache.LocalityHost, "SecretDiscoveryService": cache.Secret,
	"RuntimeDiscoveryService": cache.Runtime, "ExtensionConfigDiscoveryService": cache.Extension,
}

// TestEveryMethodIsMeant: a row says of each method that is served what keeps it from giving a client what is not
// its own, and each discovery method does so. A generated service that grows a method is noticed here.
func TestEveryMethodIsMeant(t *testing.T) {
	var rules strings.Builder
	rules.WriteString("rules:\n  - identity: \"spiffe://td/sa/{sa}\"\n    read:\n")
	for _, of := range typesOf {
		rules.WriteString("      - {types: [\"" + string(of) + "\"], names: [\"{sa}/key\"]}\n")
	}
	s := newScene(t, rules.String())
	for _, of := range typesOf {
		s.plane.set(of, "alice/key", "hers")
		s.plane.set(of, "bob/key", canary)
	}
	var tap memory
	bob, alice := s.as("spiffe://td/sa/bob", nil), s.as("spiffe://td/sa/alice", &tap)
	served := s.relay.Methods()
	for method := range meant {
		if !slices.Contains(served, method) {
			t.Errorf("%s has a row, and is not served", method)
		}
	}
	for _, method := range served {
		switch meant[method] {
		case "":
			t.Errorf("%s is served. Add a row that says what keeps it from giving a client what is not its own", method)
		case byTheDoor:
			t.Run(method, func(t *testing.T) {
				of := typesOf[method[strings.LastIndexByte(method[:strings.LastIndexByte(method, '/')], '.')+1:strings.LastIndexByte(method, '/')]]
				his := begin(t, bob, method, of)
				defer his.over()
				his.asks(nodeOf("bob", ""), nil, "bob/key")
				his.gets("bob/key", canary)
				hers := begin(t, alice, method, of)
				defer hers.over()
				hers.asks(nodeOf("alice", ""), nil, "alice/key", "bob/key")
				hers.gets("alice/key", "hers")
				hers.denied("bob/key")
			})
		}
	}
	if tap.has(canary) {
		t.Errorf("Alice has heard Bob's key")
	}
}

// TestPollsAreMeant: over REST, too, the door decides what a client gets.
func TestPollsAreMeant(t *testing.T) {
	s := newScene(t, "rules:\n  - {identity: \"spiffe://td/sa/{sa}\", read: [{types: [SDS], names: [\"{sa}/key\"]}]}\n", "downstream.rest.listen=127.0.0.1:0")
	s.plane.set(cache.Secret, "alice/key", "hers")
	s.plane.set(cache.Secret, "bob/key", canary)
	l, err := s.relay.ListenREST()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.relay.ServeREST(l); err != nil {
		t.Fatal(err)
	}
	for who, other := range map[string]string{"alice": "bob", "bob": "alice"} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: s.showing("spiffe://td/sa/" + who)}}
		for path, wanted := range map[string]int{"secrets": http.StatusOK, "clusters": http.StatusForbidden} {
			resp, err := client.Post("https://"+l.Addr().String()+"/v3/discovery:"+path, "application/json", strings.NewReader(`{"resource_names":["alice/key","bob/key"]}`))
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != wanted || strings.Contains(string(text), who+"/key") != (wanted == http.StatusOK) || strings.Contains(string(text), other+"/key") {
				t.Errorf("%s polls for %s, and gets %s: %s", who, path, resp.Status, text)
			}
		}
		client.CloseIdleConnections()
	}
}

// canary is in Bob's key, and nobody else's.
const canary = "canary-7f3a-bobs-private-key"
