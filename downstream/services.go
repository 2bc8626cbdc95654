package downstream

import (
	"context"

	cluster "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	extension "github.com/envoyproxy/go-control-plane/envoy/service/extension/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/service/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/service/route/v3"
	runtime "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	secret "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
)

// The service table of protocol.md §0: every method, registered with the
// generated stubs, runs the one kind of stream, or the one kind of unary call. What
// is not here does not exist.

func (s *Server) registerServices() {
	discovery.RegisterAggregatedDiscoveryServiceServer(s.grpc, adsService{server: s})
	listener.RegisterListenerDiscoveryServiceServer(s.grpc, listenerService{server: s})
	route.RegisterRouteDiscoveryServiceServer(s.grpc, routeService{server: s})
	route.RegisterScopedRoutesDiscoveryServiceServer(s.grpc, scopedRouteService{server: s})
	cluster.RegisterClusterDiscoveryServiceServer(s.grpc, clusterService{server: s})
	endpoint.RegisterEndpointDiscoveryServiceServer(s.grpc, endpointService{server: s})
	secret.RegisterSecretDiscoveryServiceServer(s.grpc, secretService{server: s})
	runtime.RegisterRuntimeDiscoveryServiceServer(s.grpc, runtimeService{server: s})
	extension.RegisterExtensionConfigDiscoveryServiceServer(s.grpc, extensionService{server: s})
	route.RegisterVirtualHostDiscoveryServiceServer(s.grpc, virtualHostService{server: s})
	endpoint.RegisterLocalityEndpointDiscoveryServiceServer(s.grpc, localityHostService{server: s})
}

type adsService struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	server *Server
}

func (a adsService) StreamAggregatedResources(g discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return a.server.serve(g, session.Stream{})
}

func (a adsService) DeltaAggregatedResources(g discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return a.server.serve(g, session.Stream{Delta: true})
}

type listenerService struct {
	listener.UnimplementedListenerDiscoveryServiceServer
	server *Server
}

func (a listenerService) StreamListeners(g listener.ListenerDiscoveryService_StreamListenersServer) error {
	return a.server.serve(g, session.Stream{Type: cache.Listener})
}

func (a listenerService) DeltaListeners(g listener.ListenerDiscoveryService_DeltaListenersServer) error {
	return a.server.serve(g, session.Stream{Delta: true, Type: cache.Listener})
}

func (a listenerService) FetchListeners(ctx context.Context, req *discovery.DiscoveryRequest) (*discovery.DiscoveryResponse, error) {
	return a.server.fetch(ctx, cache.Listener, req)
}

type routeService struct {
	route.UnimplementedRouteDiscoveryServiceServer
	server *Server
}

func (a routeService) StreamRoutes(g route.RouteDiscoveryService_StreamRoutesServer) error {
	return a.server.serve(g, session.Stream{Type: cache.Route})
}

func (a routeService) DeltaRoutes(g route.RouteDiscoveryService_DeltaRoutesServer) error {
	return a.server.serve(g, session.Stream{Delta: true, Type: cache.Route})
}

func (a routeService) FetchRoutes(ctx context.Context, req *discovery.DiscoveryRequest) (*discovery.DiscoveryResponse, error) {
	return a.server.fetch(ctx, cache.Route, req)
}

type scopedRouteService struct {
	route.UnimplementedScopedRoutesDiscoveryServiceServer
	server *Server
}

func (a scopedRouteService) StreamScopedRoutes(g route.ScopedRoutesDiscoveryService_StreamScopedRoutesServer) error {
	return a.server.serve(g, session.Stream{Type: cache.ScopedRoute})
}

func (a scopedRouteService) DeltaScopedRoutes(g route.ScopedRoutesDiscoveryService_DeltaScopedRoutesServer) error {
	return a.server.serve(g, session.Stream{Delta: true, Type: cache.ScopedRoute})
}

func (a scopedRouteService) FetchScopedRoutes(ctx context.Context, req *discovery.DiscoveryRequest) (*discovery.DiscoveryResponse, error) {
	return a.server.fetch(ctx, cache.ScopedRoute, req)
}

type clusterService struct {
	cluster.UnimplementedClusterDiscoveryServiceServer
	server *Server
}

func (a clusterService) StreamClusters(g cluster.ClusterDiscoveryService_StreamClustersServer) error {
	return a.server.serve(g, session.Stream{Type: cache.Cluster})
}

func (a clusterService) DeltaClusters(g cluster.ClusterDiscoveryService_DeltaClustersServer) error {
	return a.server.serve(g, session.Stream{Delta: true, Type: cache.Cluster})
}

func (a clusterService) FetchClusters(ctx context.Context, req *discovery.DiscoveryRequest) (*discovery.DiscoveryResponse, error) {
	return a.server.fetch(ctx, cache.Cluster, req)
}

type endpointService struct {
	endpoint.UnimplementedEndpointDiscoveryServiceServer
	server *Server
}

func (a endpointService) StreamEndpoints(g endpoint.EndpointDiscoveryService_StreamEndpointsServer) error {
	return a.server.serve(g, session.Stream{Type: cache.Endpoint})
}

func (a endpointService) DeltaEndpoints(g endpoint.EndpointDiscoveryService_DeltaEndpointsServer) error {
	return a.server.serve(g, session.Stream{Delta: true, Type: cache.Endpoint})
}

func (a endpointService) FetchEndpoints(ctx context.Context, req *discovery.DiscoveryRequest) (*discovery.DiscoveryResponse, error) {
	return a.server.fetch(ctx, cache.Endpoint, req)
}

type secretService struct {
	secret.UnimplementedSecretDiscoveryServiceServer
	server *Server
}

func (a secretService) StreamSecrets(g secret.SecretDiscoveryService_StreamSecretsServer) error {
	return a.server.serve(g, session.Stream{Type: cache.Secret})
}

func (a secretService) DeltaSecrets(g secret.SecretDiscoveryService_DeltaSecretsServer) error {
	return a.server.serve(g, session.Stream{Delta: true, Type: cache.Secret})
}

func (a secretService) FetchSecrets(ctx context.Context, req *discovery.DiscoveryRequest) (*discovery.DiscoveryResponse, error) {
	return a.server.fetch(ctx, cache.Secret, req)
}

type runtimeService struct {
	runtime.UnimplementedRuntimeDiscoveryServiceServer
	server *Server
}

func (a runtimeService) StreamRuntime(g runtime.RuntimeDiscoveryService_StreamRuntimeServer) error {
	return a.server.serve(g, session.Stream{Type: cache.Runtime})
}

func (a runtimeService) DeltaRuntime(g runtime.RuntimeDiscoveryService_DeltaRuntimeServer) error {
	return a.server.serve(g, session.Stream{Delta: true, Type: cache.Runtime})
}

func (a runtimeService) FetchRuntime(ctx context.Context, req *discovery.DiscoveryRequest) (*discovery.DiscoveryResponse, error) {
	return a.server.fetch(ctx, cache.Runtime, req)
}

type extensionService struct {
	extension.UnimplementedExtensionConfigDiscoveryServiceServer
	server *Server
}

func (a extensionService) StreamExtensionConfigs(g extension.ExtensionConfigDiscoveryService_StreamExtensionConfigsServer) error {
	return a.server.serve(g, session.Stream{Type: cache.Extension})
}

func (a extensionService) DeltaExtensionConfigs(g extension.ExtensionConfigDiscoveryService_DeltaExtensionConfigsServer) error {
	return a.server.serve(g, session.Stream{Delta: true, Type: cache.Extension})
}

func (a extensionService) FetchExtensionConfigs(ctx context.Context, req *discovery.DiscoveryRequest) (*discovery.DiscoveryResponse, error) {
	return a.server.fetch(ctx, cache.Extension, req)
}

type virtualHostService struct {
	route.UnimplementedVirtualHostDiscoveryServiceServer
	server *Server
}

func (a virtualHostService) DeltaVirtualHosts(g route.VirtualHostDiscoveryService_DeltaVirtualHostsServer) error {
	return a.server.serve(g, session.Stream{Delta: true, Type: cache.VirtualHost})
}

type localityHostService struct {
	endpoint.UnimplementedLocalityEndpointDiscoveryServiceServer
	server *Server
}

func (a localityHostService) DeltaLocalityEndpoints(g endpoint.LocalityEndpointDiscoveryService_DeltaLocalityEndpointsServer) error {
	return a.server.serve(g, session.Stream{Delta: true, Type: cache.LocalityHost})
}
