package demo

import (
	"fmt"
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
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xds-relay/xds-relay/cache"
)

// services are what the control plane knows. Each is a listener, a route
// configuration, a cluster and its endpoints, all of that name.
var services = []string{"cart", "catalog", "checkout", "mail", "orders", "payment", "search", "users"}

// types are the types of the demo, in the order in which an Envoy asks for them.
var types = []cache.TypeURL{cache.Cluster, cache.Endpoint, cache.Listener, cache.Route}

// resource is a resource of a type and a name, at a revision. The revision stands
// in its metadata, so that a client can tell how new its copy is.
func resource(t cache.TypeURL, name string, revision int) gcptypes.Resource {
	switch t {
	case cache.Cluster:
		return &cluster.Cluster{
			Name:                 name,
			ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_EDS},
			EdsClusterConfig:     &cluster.Cluster_EdsClusterConfig{EdsConfig: ads(), ServiceName: name},
			ConnectTimeout:       durationpb.New(5 * time.Second),
			Metadata:             revisionMetadata(revision),
		}
	case cache.Endpoint:
		l := &endpoint.LocalityLbEndpoints{
			Locality: &core.Locality{Region: "local", Zone: "a"},
			Metadata: revisionMetadata(revision),
		}
		for i := range 3 {
			l.LbEndpoints = append(l.LbEndpoints, &endpoint.LbEndpoint{HostIdentifier: &endpoint.LbEndpoint_Endpoint{
				Endpoint: &endpoint.Endpoint{Address: address(fmt.Sprintf("10.0.%d.%d", revision%256, i+1), 8080)},
			}})
		}
		return &endpoint.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpoint.LocalityLbEndpoints{l}}
	case cache.Route:
		return &route.RouteConfiguration{Name: name, VirtualHosts: []*route.VirtualHost{{
			Name: name, Domains: []string{"*"},
			Routes: []*route.Route{{
				Match: &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: "/"}},
				Action: &route.Route_Route{Route: &route.RouteAction{
					ClusterSpecifier: &route.RouteAction_Cluster{Cluster: name},
				}},
			}},
		}}}
	default:
		return &listener.Listener{Name: name, ApiListener: &listener.ApiListener{ApiListener: pack(&hcm.HttpConnectionManager{
			RouteSpecifier: &hcm.HttpConnectionManager_Rds{Rds: &hcm.Rds{ConfigSource: ads(), RouteConfigName: name}},
			HttpFilters: []*hcm.HttpFilter{{
				Name: "router", ConfigType: &hcm.HttpFilter_TypedConfig{TypedConfig: pack(&router.Router{})},
			}},
		})}}
	}
}

func ads() *core.ConfigSource {
	return &core.ConfigSource{
		ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}},
		ResourceApiVersion:    core.ApiVersion_V3,
	}
}

func address(host string, port uint32) *core.Address {
	return &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
		Address: host, PortSpecifier: &core.SocketAddress_PortValue{PortValue: port},
	}}}
}

const metadataKey = "xds-relay.demo"

func revisionMetadata(revision int) *core.Metadata {
	return &core.Metadata{FilterMetadata: map[string]*structpb.Struct{metadataKey: {
		Fields: map[string]*structpb.Value{"revision": structpb.NewNumberValue(float64(revision))},
	}}}
}

func pack(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err) // made in this file, of strings that are UTF-8: it can be encoded
	}
	return a
}

// content is what a client needs to know of a resource.
type content struct {
	name     string
	revision int    // 0 for types that do not change here
	refers   string // the name of the resource that this one leads to
}

// references are the types that resources of a type lead to.
var references = map[cache.TypeURL]cache.TypeURL{
	cache.Listener: cache.Route,
	cache.Route:    cache.Cluster,
	cache.Cluster:  cache.Endpoint,
}

// decode reads a resource as a client would.
func decode(t cache.TypeURL, body []byte) (content, error) {
	switch t {
	case cache.Cluster:
		var m cluster.Cluster
		if err := proto.Unmarshal(body, &m); err != nil {
			return content{}, err
		}
		refers := m.GetEdsClusterConfig().GetServiceName()
		if refers == "" {
			refers = m.GetName()
		}
		return content{m.GetName(), revisionIn(m.GetMetadata()), refers}, nil
	case cache.Endpoint:
		var m endpoint.ClusterLoadAssignment
		if err := proto.Unmarshal(body, &m); err != nil {
			return content{}, err
		}
		c := content{name: m.GetClusterName()}
		if len(m.GetEndpoints()) > 0 {
			c.revision = revisionIn(m.GetEndpoints()[0].GetMetadata())
		}
		return c, nil
	case cache.Route:
		var m route.RouteConfiguration
		if err := proto.Unmarshal(body, &m); err != nil {
			return content{}, err
		}
		c := content{name: m.GetName()}
		if hosts := m.GetVirtualHosts(); len(hosts) > 0 && len(hosts[0].GetRoutes()) > 0 {
			c.refers = hosts[0].GetRoutes()[0].GetRoute().GetCluster()
		}
		return c, nil
	case cache.Listener:
		var m listener.Listener
		if err := proto.Unmarshal(body, &m); err != nil {
			return content{}, err
		}
		var h hcm.HttpConnectionManager
		if err := m.GetApiListener().GetApiListener().UnmarshalTo(&h); err != nil {
			return content{}, fmt.Errorf("listener %q: %w", m.GetName(), err)
		}
		return content{name: m.GetName(), refers: h.GetRds().GetRouteConfigName()}, nil
	}
	return content{}, fmt.Errorf("a client of the demo does not know the type %s", t)
}

func revisionIn(m *core.Metadata) int {
	return int(m.GetFilterMetadata()[metadataKey].GetFields()["revision"].GetNumberValue())
}
