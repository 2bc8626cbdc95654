package xdstest

import "strings"

const (
	googleapis = "type.googleapis.com/"
	testPrefix = googleapis + "test."
)

// api is one row of the type table: a short name, its message and the per-type methods.
type api struct {
	short, url  string
	service     string
	sotw, delta string // method names; "" where the variant has none
	// The same of the v2 API, without "envoy."; "" where it has none.
	v2, v2Service string
}

const envoy = googleapis + "envoy."

var apis = []api{
	{"LDS", envoy + "config.listener.v3.Listener", "listener.v3.ListenerDiscoveryService", "StreamListeners", "DeltaListeners", "api.v2.Listener", "api.v2.ListenerDiscoveryService"},
	{"CDS", envoy + "config.cluster.v3.Cluster", "cluster.v3.ClusterDiscoveryService", "StreamClusters", "DeltaClusters", "api.v2.Cluster", "api.v2.ClusterDiscoveryService"},
	{"RDS", envoy + "config.route.v3.RouteConfiguration", "route.v3.RouteDiscoveryService", "StreamRoutes", "DeltaRoutes", "api.v2.RouteConfiguration", "api.v2.RouteDiscoveryService"},
	{"EDS", envoy + "config.endpoint.v3.ClusterLoadAssignment", "endpoint.v3.EndpointDiscoveryService", "StreamEndpoints", "DeltaEndpoints", "api.v2.ClusterLoadAssignment", "api.v2.EndpointDiscoveryService"},
	{"SDS", envoy + "extensions.transport_sockets.tls.v3.Secret", "secret.v3.SecretDiscoveryService", "StreamSecrets", "DeltaSecrets", "api.v2.auth.Secret", "service.discovery.v2.SecretDiscoveryService"},
	{"RTDS", envoy + "service.runtime.v3.Runtime", "runtime.v3.RuntimeDiscoveryService", "StreamRuntime", "DeltaRuntime", "service.discovery.v2.Runtime", "service.discovery.v2.RuntimeDiscoveryService"},
	{"ECDS", envoy + "config.core.v3.TypedExtensionConfig", "extension.v3.ExtensionConfigDiscoveryService", "StreamExtensionConfigs", "DeltaExtensionConfigs", "", ""},
	{"SRDS", envoy + "config.route.v3.ScopedRouteConfiguration", "route.v3.ScopedRoutesDiscoveryService", "StreamScopedRoutes", "DeltaScopedRoutes", "api.v2.ScopedRouteConfiguration", "api.v2.ScopedRoutesDiscoveryService"},
	{"VHDS", envoy + "config.route.v3.VirtualHost", "route.v3.VirtualHostDiscoveryService", "", "DeltaVirtualHosts", "api.v2.route.VirtualHost", "api.v2.VirtualHostDiscoveryService"},
	{"LEDS", envoy + "config.endpoint.v3.LbEndpoint", "endpoint.v3.LocalityEndpointDiscoveryService", "", "DeltaLocalityEndpoints", "", ""},
}

var ads = api{service: "discovery.v3.AggregatedDiscoveryService", sotw: "StreamAggregatedResources", delta: "DeltaAggregatedResources", v2Service: "service.discovery.v2.AggregatedDiscoveryService"}

// ofV2 ends the short name of a type of the v2 API.
const ofV2 = ".v2"

// current is the type URL that replaced one of the v2 API; others are returned as they are.
func current(url string) string {
	for _, a := range apis {
		if a.v2 != "" && url == envoy+a.v2 {
			return a.url
		}
	}
	return url
}

// TypeURL expands a short name; anything with a slash in it is taken as a type URL already.
func TypeURL(short string) string {
	for _, a := range apis {
		switch short {
		case a.short:
			return a.url
		case a.short + ofV2:
			return envoy + a.v2
		}
	}
	if strings.Contains(short, "/") {
		return short
	}
	return testPrefix + short
}

// ShortName is the inverse of TypeURL; other type URLs come back quoted.
func ShortName(url string) string {
	for _, a := range apis {
		switch url {
		case a.url:
			return a.short
		case envoy + a.v2:
			return a.short + ofV2
		}
	}
	if short, ok := strings.CutPrefix(url, testPrefix); ok {
		return quote(short)
	}
	return `"` + url + `"`
}

// method is the full gRPC method of a stream, of either API: of that type, or ADS if the type is empty. "" if there is none.
func method(typeURL string, sotw, v2 bool) string {
	a := ads
	for _, b := range apis {
		if b.url == current(typeURL) {
			a = b
		}
	}
	if typeURL != "" && a.url == "" {
		return ""
	}
	name := a.delta
	if sotw {
		name = a.sotw
	}
	service := "service." + a.service
	if v2 {
		service = a.v2Service
	}
	if name == "" || service == "" {
		return ""
	}
	return "/envoy." + service + "/" + name
}
