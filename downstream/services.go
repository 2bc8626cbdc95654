package downstream

import (
	"context"
	"slices"
	"strings"

	cluster "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	extension "github.com/envoyproxy/go-control-plane/envoy/service/extension/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/service/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/service/route/v3"
	runtime "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	secret "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
)

// Methods lists the methods that clients can call, as service/method; of a service that goes through, service/*.
func (s *Server) Methods() (methods []string) {
	for service, info := range s.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			methods = append(methods, service+"/"+m.Name)
		}
	}
	for service := range s.Calls() { // whatever methods it has
		methods = append(methods, service+"/*")
	}
	slices.Sort(methods)
	return methods
}

// registerServices offers the services in the table of protocol.md §0, and no others.
func (s *Server) registerServices() {
	s.offer("", discovery.AggregatedDiscoveryService_ServiceDesc)
	s.offer(cache.Listener, listener.ListenerDiscoveryService_ServiceDesc)
	s.offer(cache.Route, route.RouteDiscoveryService_ServiceDesc)
	s.offer(cache.ScopedRoute, route.ScopedRoutesDiscoveryService_ServiceDesc)
	s.offer(cache.Cluster, cluster.ClusterDiscoveryService_ServiceDesc)
	s.offer(cache.Endpoint, endpoint.EndpointDiscoveryService_ServiceDesc)
	s.offer(cache.Secret, secret.SecretDiscoveryService_ServiceDesc)
	s.offer(cache.Runtime, runtime.RuntimeDiscoveryService_ServiceDesc)
	s.offer(cache.Extension, extension.ExtensionConfigDiscoveryService_ServiceDesc)
	s.offer(cache.VirtualHost, route.VirtualHostDiscoveryService_ServiceDesc)
	s.offer(cache.LocalityHost, endpoint.LocalityEndpointDiscoveryService_ServiceDesc)
}

// offer registers the methods of a service for a type, or for all types (""). Streaming methods
// are named Delta… in one variant and Stream… in the other; a unary method fetches.
func (s *Server) offer(t cache.TypeURL, desc grpc.ServiceDesc) {
	desc.Streams, desc.Methods = slices.Clone(desc.Streams), slices.Clone(desc.Methods)
	for i := range desc.Streams {
		kind := session.Stream{Delta: strings.HasPrefix(desc.Streams[i].StreamName, "Delta"), Type: t}
		desc.Streams[i].Handler = func(_ any, stream grpc.ServerStream) error { return s.serve(stream, kind) }
	}
	for i := range desc.Methods {
		desc.Methods[i].Handler = func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			c, err := s.startCall(ctx, fetching)
			if err != nil {
				return nil, err
			}
			defer c.close()
			in := &inbox{limit: s.config.MaxRequest, from: c.from}
			if in.refused = s.refusesCompression(ctx); in.refused == nil {
				if err := c.received(decode(in)); err != nil {
					return nil, err
				}
			}
			return s.fetch(c, t, in)
		}
	}
	s.grpc.RegisterService(&desc, nil)
}
