package downstream

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/credentials/insecure"
)

// TestEveryMethodIsMeant: the methods that are registered are those of the service
// table of protocol.md, the health checks of gRPC, and no other. A generated service
// that grows a method is noticed here.
func TestEveryMethodIsMeant(t *testing.T) {
	want := []string{
		"grpc.health.v1.Health/Check", "grpc.health.v1.Health/List", "grpc.health.v1.Health/Watch",
		"envoy.service.route.v3.VirtualHostDiscoveryService/DeltaVirtualHosts",
		"envoy.service.endpoint.v3.LocalityEndpointDiscoveryService/DeltaLocalityEndpoints",
		"envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
		"envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources",
	}
	for service, api := range map[string]string{
		"listener.v3.ListenerDiscoveryService":         "Listeners",
		"route.v3.RouteDiscoveryService":               "Routes",
		"route.v3.ScopedRoutesDiscoveryService":        "ScopedRoutes",
		"cluster.v3.ClusterDiscoveryService":           "Clusters",
		"endpoint.v3.EndpointDiscoveryService":         "Endpoints",
		"secret.v3.SecretDiscoveryService":             "Secrets",
		"runtime.v3.RuntimeDiscoveryService":           "Runtime",
		"extension.v3.ExtensionConfigDiscoveryService": "ExtensionConfigs",
	} {
		for _, variant := range []string{"Stream", "Delta", "Fetch"} {
			want = append(want, "envoy.service."+service+"/"+variant+api)
		}
	}
	s := NewServer(ServerConfig{Credentials: insecure.NewCredentials(), Log: slog.New(slog.DiscardHandler), MaxRequest: 1 << 20})
	defer s.Close(0)
	var got []string
	for service, info := range s.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			got = append(got, service+"/"+m.Name)
			if stream := m.IsClientStream && m.IsServerStream; strings.HasPrefix(service, "envoy.") && stream == strings.HasPrefix(m.Name, "Fetch") {
				t.Errorf("%s/%s: streaming %v", service, m.Name, stream)
			}
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("registered:\n%s\nwant:\n%s", list(got), list(want))
	}
}

func list(items []string) string { return strings.Join(items, "\n") }
