// Package service owns the table of the protocol's discovery services (protocol.md §0): the aggregated one, and those
// of one type. Clients call them on the relay, and the relay calls them on control planes.
package service

import (
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
)

// Service is a discovery service.
type Service struct {
	// Type is the only type that it serves; empty: it serves all.
	Type cache.TypeURL
	grpc.ServiceDesc
	// rest is the last part of the path where the type is polled for (REST-1), or "".
	rest string
	// v2 is its name in the v2 API, or "".
	v2 string
}

// RESTPath is the path where the type is polled for, or "".
func (s Service) RESTPath() string {
	if s.rest == "" {
		return ""
	}
	return "/v3/discovery:" + s.rest
}

var all = []Service{
	{"", discovery.AggregatedDiscoveryService_ServiceDesc, "", "envoy.service.discovery.v2.AggregatedDiscoveryService"},
	{cache.Listener, listener.ListenerDiscoveryService_ServiceDesc, "listeners", "envoy.api.v2.ListenerDiscoveryService"},
	{cache.Route, route.RouteDiscoveryService_ServiceDesc, "routes", "envoy.api.v2.RouteDiscoveryService"},
	{cache.ScopedRoute, route.ScopedRoutesDiscoveryService_ServiceDesc, "scoped-routes", "envoy.api.v2.ScopedRoutesDiscoveryService"},
	{cache.Cluster, cluster.ClusterDiscoveryService_ServiceDesc, "clusters", "envoy.api.v2.ClusterDiscoveryService"},
	{cache.Endpoint, endpoint.EndpointDiscoveryService_ServiceDesc, "endpoints", "envoy.api.v2.EndpointDiscoveryService"},
	{cache.Secret, secret.SecretDiscoveryService_ServiceDesc, "secrets", "envoy.service.discovery.v2.SecretDiscoveryService"},
	{cache.Runtime, runtime.RuntimeDiscoveryService_ServiceDesc, "runtime", "envoy.service.discovery.v2.RuntimeDiscoveryService"},
	{cache.Extension, extension.ExtensionConfigDiscoveryService_ServiceDesc, "extension_configs", ""},
	{cache.VirtualHost, route.VirtualHostDiscoveryService_ServiceDesc, "", "envoy.api.v2.VirtualHostDiscoveryService"},
	{cache.LocalityHost, endpoint.LocalityEndpointDiscoveryService_ServiceDesc, "", ""},
}

// All are the services. Nobody may change them.
func All() []Service { return all }

// V2 are the services of the v2 API. They have the same methods, whose messages are the same on the wire, without the
// fields that v2 lacks (V2-1, V2-3). Each serves the v2 type by default.
func V2() (old []Service) {
	for _, s := range all {
		if s.v2 != "" {
			s.Type, s.ServiceName, s.v2 = s.Type.V2(), s.v2, ""
			old = append(old, s)
		}
	}
	return old
}

// Of returns the service of a type, or the aggregated one for the empty type; false: the type has none.
func Of(t cache.TypeURL) (Service, bool) {
	i := slices.IndexFunc(all, func(s Service) bool { return s.Type == t })
	if i < 0 {
		return Service{}, false
	}
	return all[i], true
}

// IsDelta reports whether a streaming method speaks Delta: such are named Delta…, and those of the other variant Stream….
func IsDelta(d grpc.StreamDesc) bool { return strings.HasPrefix(d.StreamName, "Delta") }

// Stream returns the service's method of a variant, as gRPC's clients need it; false: it has none.
func (s Service) Stream(sotw bool) (d *grpc.StreamDesc, method string, ok bool) {
	i := slices.IndexFunc(s.Streams, func(d grpc.StreamDesc) bool { return IsDelta(d) != sotw })
	if i < 0 {
		return nil, "", false
	}
	return &s.Streams[i], "/" + s.ServiceName + "/" + s.Streams[i].StreamName, true
}
