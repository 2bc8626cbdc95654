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
}

const envoy = googleapis + "envoy."

var apis = []api{
	{"LDS", envoy + "config.listener.v3.Listener", "listener.v3.ListenerDiscoveryService", "StreamListeners", "DeltaListeners"},
	{"CDS", envoy + "config.cluster.v3.Cluster", "cluster.v3.ClusterDiscoveryService", "StreamClusters", "DeltaClusters"},
	{"RDS", envoy + "config.route.v3.RouteConfiguration", "route.v3.RouteDiscoveryService", "StreamRoutes", "DeltaRoutes"},
	{"EDS", envoy + "config.endpoint.v3.ClusterLoadAssignment", "endpoint.v3.EndpointDiscoveryService", "StreamEndpoints", "DeltaEndpoints"},
	{"SDS", envoy + "extensions.transport_sockets.tls.v3.Secret", "secret.v3.SecretDiscoveryService", "StreamSecrets", "DeltaSecrets"},
	{"RTDS", envoy + "service.runtime.v3.Runtime", "runtime.v3.RuntimeDiscoveryService", "StreamRuntime", "DeltaRuntime"},
	{"ECDS", envoy + "config.core.v3.TypedExtensionConfig", "extension.v3.ExtensionConfigDiscoveryService", "StreamExtensionConfigs", "DeltaExtensionConfigs"},
	{"SRDS", envoy + "config.route.v3.ScopedRouteConfiguration", "route.v3.ScopedRoutesDiscoveryService", "StreamScopedRoutes", "DeltaScopedRoutes"},
	{"VHDS", envoy + "config.route.v3.VirtualHost", "route.v3.VirtualHostDiscoveryService", "", "DeltaVirtualHosts"},
	{"LEDS", envoy + "config.endpoint.v3.LbEndpoint", "endpoint.v3.LocalityEndpointDiscoveryService", "", "DeltaLocalityEndpoints"},
}

var ads = api{service: "discovery.v3.AggregatedDiscoveryService", sotw: "StreamAggregatedResources", delta: "DeltaAggregatedResources"}

// TypeURL expands a short name; anything with a slash in it is taken as a type URL already.
func TypeURL(short string) string {
	for _, a := range apis {
		if a.short == short {
			return a.url
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
		if a.url == url {
			return a.short
		}
	}
	if short, ok := strings.CutPrefix(url, testPrefix); ok {
		return quote(short)
	}
	return `"` + url + `"`
}

// method is the full gRPC method of a stream: of that type, or ADS if the type is empty. "" if there is none.
func method(typeURL string, sotw bool) string {
	a := ads
	for _, b := range apis {
		if b.url == typeURL {
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
	if name == "" {
		return ""
	}
	return "/envoy.service." + a.service + "/" + name
}
