package service

import (
	"slices"
	"testing"

	v2 "github.com/envoyproxy/go-control-plane/envoy/api/v2"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v2"
	"google.golang.org/grpc"

	"github.com/xds-relay/xds-relay/cache"
)

// TestV2: the services of the v2 API have the names and methods of its own definitions.
func TestV2(t *testing.T) {
	want := map[string]grpc.ServiceDesc{}
	for _, desc := range []grpc.ServiceDesc{
		discovery.AggregatedDiscoveryService_ServiceDesc, v2.ListenerDiscoveryService_ServiceDesc, v2.RouteDiscoveryService_ServiceDesc,
		v2.ScopedRoutesDiscoveryService_ServiceDesc, v2.ClusterDiscoveryService_ServiceDesc, v2.EndpointDiscoveryService_ServiceDesc,
		discovery.SecretDiscoveryService_ServiceDesc, discovery.RuntimeDiscoveryService_ServiceDesc, v2.VirtualHostDiscoveryService_ServiceDesc,
	} {
		want[desc.ServiceName] = desc
	}
	for _, s := range V2() {
		desc, ok := want[s.ServiceName]
		if !ok {
			t.Errorf("v2 has no %s", s.ServiceName)
			continue
		}
		delete(want, s.ServiceName)
		if got, want := methods(s.ServiceDesc), methods(desc); !slices.Equal(got, want) {
			t.Errorf("%s has the methods %q, want %q", s.ServiceName, got, want)
		}
		if ads := s.ServiceName == discovery.AggregatedDiscoveryService_ServiceDesc.ServiceName; ads != (s.Type == "") || s.Type.V2() != "" || !ads && s.Type == s.Type.V3() {
			t.Errorf("%s serves %q", s.ServiceName, s.Type)
		}
	}
	for name := range want {
		t.Errorf("%s is missing", name)
	}
	if s, _ := Of(cache.Cluster); s.ServiceName != "envoy.service.cluster.v3.ClusterDiscoveryService" {
		t.Errorf("the current API is called by the name %q", s.ServiceName)
	}
}

func methods(desc grpc.ServiceDesc) (names []string) {
	for _, m := range desc.Methods {
		names = append(names, m.MethodName)
	}
	for _, s := range desc.Streams {
		names = append(names, s.StreamName)
	}
	slices.Sort(names)
	return names
}
