package config

import "strings"

// typePrefix starts every type URL that xDS uses.
const typePrefix = "type.googleapis.com/"

// shortNames are the APIs that have an abbreviation.
var shortNames = map[string]string{
	"LDS":  "envoy.config.listener.v3.Listener",
	"CDS":  "envoy.config.cluster.v3.Cluster",
	"SRDS": "envoy.config.route.v3.ScopedRouteConfiguration",
	"RDS":  "envoy.config.route.v3.RouteConfiguration",
	"EDS":  "envoy.config.endpoint.v3.ClusterLoadAssignment",
	"SDS":  "envoy.extensions.transport_sockets.tls.v3.Secret",
	"RTDS": "envoy.service.runtime.v3.Runtime",
	"ECDS": "envoy.config.core.v3.TypedExtensionConfig",
	"VHDS": "envoy.config.route.v3.VirtualHost",
	"LEDS": "envoy.config.endpoint.v3.LbEndpoint",
}

// TypeURL returns the type URL for a type as the file may name it: a type URL,
// which is returned as it is since any type is relayable (VALID-6), or a short
// name such as CDS, in upper or lower case.
func TypeURL(name string) (string, bool) {
	if message, ok := shortNames[strings.ToUpper(name)]; ok {
		return typePrefix + message, true
	}
	i := strings.LastIndexByte(name, '/')
	if i <= 0 || i == len(name)-1 || strings.ContainsAny(name, " \t\r\n") || strings.Contains(name, "://") {
		return "", false
	}
	return name, true
}
