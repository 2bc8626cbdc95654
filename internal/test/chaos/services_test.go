//go:build linux

package chaos

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	gcptypes "github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xds-relay/xds-relay/cache"
)

// A service is a listener, the routes that it names, the cluster that these lead to,
// and its endpoints, which have the cluster's name: all that a gRPC client or an
// Envoy takes from xDS to send a request somewhere.

// worldTypes are the types that there are resources of.
var worldTypes = []cache.TypeURL{cache.Listener, cache.Route, cache.Cluster, cache.Endpoint}

const (
	servicePrefix = "service-"
	routesSuffix  = "-routes"
	clusterSuffix = "-cluster"
)

func serviceName(i int) string { return fmt.Sprintf("%s%03d", servicePrefix, i) }

func serviceKeys(i int) []key {
	name := serviceName(i)
	return []key{
		{cache.Listener, name}, {cache.Route, name + routesSuffix},
		{cache.Cluster, name + clusterSuffix}, {cache.Endpoint, name + clusterSuffix},
	}
}

// service is a resource of a service, or nil for any other name.
func (w world) service(k key) gcptypes.Resource {
	if !strings.HasPrefix(k.name, servicePrefix) {
		return nil
	}
	ads := &core.ConfigSource{
		ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}},
		ResourceApiVersion:    core.ApiVersion_V3,
	}
	switch k.typ {
	case cache.Listener:
		manager := &hcm.HttpConnectionManager{
			RouteSpecifier: &hcm.HttpConnectionManager_Rds{Rds: &hcm.Rds{ConfigSource: ads, RouteConfigName: k.name + routesSuffix}},
			HttpFilters:    []*hcm.HttpFilter{{Name: "router", ConfigType: &hcm.HttpFilter_TypedConfig{TypedConfig: packed(&router.Router{})}}},
		}
		return &listener.Listener{Name: k.name, ApiListener: &listener.ApiListener{ApiListener: packed(manager)}}
	case cache.Route:
		return &route.RouteConfiguration{Name: k.name, VirtualHosts: []*route.VirtualHost{{
			Name: "all", Domains: []string{"*"},
			Routes: []*route.Route{{
				Match: &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: ""}},
				Action: &route.Route_Route{Route: &route.RouteAction{ClusterSpecifier: &route.RouteAction_Cluster{
					Cluster: strings.TrimSuffix(k.name, routesSuffix) + clusterSuffix,
				}}},
			}},
		}}}
	case cache.Cluster:
		return &cluster.Cluster{
			Name:                 k.name,
			ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_EDS},
			EdsClusterConfig:     &cluster.Cluster_EdsClusterConfig{EdsConfig: ads},
			ConnectTimeout:       durationpb.New(time.Second),
		}
	default:
		return &endpoint.ClusterLoadAssignment{ClusterName: k.name, Endpoints: []*endpoint.LocalityLbEndpoints{{
			Locality:            &core.Locality{Region: "here"},
			LoadBalancingWeight: wrapperspb.UInt32(1),
			LbEndpoints: []*endpoint.LbEndpoint{{
				HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{Address: socketAddress(w.Backend)}},
			}},
		}}}
	}
}

func socketAddress(address string) *core.Address {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		panic(err) // a test's own mistake
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		panic(err)
	}
	return &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
		Address: host, PortSpecifier: &core.SocketAddress_PortValue{PortValue: uint32(n)},
	}}}
}

func packed(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err) // made in this file
	}
	return a
}
