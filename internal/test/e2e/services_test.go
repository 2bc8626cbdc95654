package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	cluster "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	extension "github.com/envoyproxy/go-control-plane/envoy/service/extension/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/service/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/service/route/v3"
	runtime "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	secret "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/xds-relay/xds-relay/cache"
)

// Every method of the service table answers with the resource that was asked for.
func TestEveryMethodAnswers(t *testing.T) {
	t.Parallel()
	table := map[*grpc.ServiceDesc]cache.TypeURL{
		&discovery.AggregatedDiscoveryService_ServiceDesc:      cache.Cluster,
		&listener.ListenerDiscoveryService_ServiceDesc:         cache.Listener,
		&route.RouteDiscoveryService_ServiceDesc:               cache.Route,
		&route.ScopedRoutesDiscoveryService_ServiceDesc:        cache.ScopedRoute,
		&route.VirtualHostDiscoveryService_ServiceDesc:         cache.VirtualHost,
		&cluster.ClusterDiscoveryService_ServiceDesc:           cache.Cluster,
		&endpoint.EndpointDiscoveryService_ServiceDesc:         cache.Endpoint,
		&endpoint.LocalityEndpointDiscoveryService_ServiceDesc: cache.LocalityHost,
		&secret.SecretDiscoveryService_ServiceDesc:             cache.Secret,
		&runtime.RuntimeDiscoveryService_ServiceDesc:           cache.Runtime,
		&extension.ExtensionConfigDiscoveryService_ServiceDesc: cache.Extension,
	}
	types := []cache.TypeURL{}
	for _, u := range table {
		types = append(types, u)
	}
	w := newLinear(t, types...)
	for _, u := range types {
		w.Set(u, "thing", raw([]byte{0x0a, 0x05, 't', 'h', 'i', 'n', 'g'}))
	}
	cp := startControlPlane(t, w.Mux())
	r := startRelay(t, cp.addr)
	conn := dial(t, r.addr)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	node := &core.Node{Id: "one"}

	streams, unary := 0, 0
	for desc, u := range table {
		for _, m := range desc.Streams {
			streams++
			// A per-type method knows its type; ADS has to be told.
			typeURL := ""
			if desc == &discovery.AggregatedDiscoveryService_ServiceDesc {
				typeURL = string(u)
			}
			stream, err := conn.NewStream(ctx, &m, "/"+desc.ServiceName+"/"+m.StreamName)
			if err != nil {
				t.Fatal(err)
			}
			name, got := m.StreamName, ""
			if strings.HasPrefix(name, "Delta") {
				resp := &discovery.DeltaDiscoveryResponse{}
				_ = stream.SendMsg(&discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: typeURL, ResourceNamesSubscribe: []string{"thing"}})
				if err = stream.RecvMsg(resp); err == nil && len(resp.GetResources()) == 1 {
					got = resp.GetTypeUrl() + " " + resp.GetResources()[0].GetName()
				}
			} else {
				resp := &discovery.DiscoveryResponse{}
				_ = stream.SendMsg(&discovery.DiscoveryRequest{Node: node, TypeUrl: typeURL, ResourceNames: []string{"thing"}})
				if err = stream.RecvMsg(resp); err == nil && len(resp.GetResources()) == 1 {
					got = resp.GetTypeUrl() + " " + nameIn(resp.GetResources()[0].GetValue())
				}
			}
			if err := first(err, is(name, got, string(u)+" thing")); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, m := range desc.Methods {
			unary++
			resp, got := &discovery.DiscoveryResponse{}, ""
			req := &discovery.DiscoveryRequest{Node: node, ResourceNames: []string{"thing"}}
			err := conn.Invoke(ctx, "/"+desc.ServiceName+"/"+m.MethodName, req, resp)
			if err == nil && len(resp.GetResources()) == 1 {
				got = resp.GetTypeUrl() + " " + nameIn(resp.GetResources()[0].GetValue())
			}
			if err := first(err, is(m.MethodName, got, string(u)+" thing")); err != nil {
				t.Errorf("%s: %v", m.MethodName, err)
			}
		}
	}
	// The service table of the contract: 2 of ADS, 2 each of eight APIs, and VHDS
	// and LEDS, which are Delta only.
	if err := first(is("streaming methods", streams, 20), is("unary methods", unary, 8)); err != nil {
		t.Error(err)
	}

	// gRPC health is served beside them.
	health, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	if err := first(err, is("health", health.GetStatus(), healthpb.HealthCheckResponse_SERVING)); err != nil {
		t.Error(err)
	}
	eventually(t, time.Second, func() error { return cp.deltaADSOnly() })
}
