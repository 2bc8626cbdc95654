package envoy

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"strconv"
	"time"

	accesslog "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xds-relay/xds-relay/cache"
)

// resource is one resource of a control plane's world.
type resource struct {
	version string // made of the content
	body    *anypb.Any
	ttl     time.Duration
	aliases []string
	leased  bool // its bytes say for how long it is good once it was received
}

// world is what a control plane has, by type and name.
type world map[cache.TypeURL]map[string]resource

// put adds or replaces.
func (w world) put(u cache.TypeURL, name string, m proto.Message) {
	if w[u] == nil {
		w[u] = make(map[string]resource)
	}
	w[u][name] = made(m)
}

// drop removes.
func (w world) drop(u cache.TypeURL, name string) { delete(w[u], name) }

func made(m proto.Message) resource {
	body := mustAny(m)
	sum := sha256.Sum256(body.GetValue())
	return resource{version: hex.EncodeToString(sum[:6]), body: body}
}

func mustAny(m proto.Message) *anypb.Any {
	a := &anypb.Any{}
	if err := anypb.MarshalFrom(a, m, proto.MarshalOptions{Deterministic: true}); err != nil {
		panic(err) // these messages are made here; they can be encoded
	}
	return a
}

// maker makes resources that refer to others through one kind of source: ads, or a
// stream of each type's own.
type maker struct{ source *core.ConfigSource }

// byADS makes resources that refer to others by ADS.
func byADS() maker {
	return maker{&core.ConfigSource{
		ResourceApiVersion:    core.ApiVersion_V3,
		InitialFetchTimeout:   durationpb.New(never),
		ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}},
	}}
}

// impatient makes resources whose Envoy goes on after 15 s without what they refer to.
func (m maker) impatient() maker {
	m.source.InitialFetchTimeout = nil
	return m
}

// perType makes resources that refer to others through the source of the bootstrap.
func perType(sotw bool) maker {
	kind := core.ApiConfigSource_DELTA_GRPC
	if sotw {
		kind = core.ApiConfigSource_GRPC
	}
	return maker{&core.ConfigSource{
		ResourceApiVersion:  core.ApiVersion_V3,
		InitialFetchTimeout: durationpb.New(never),
		ConfigSourceSpecifier: &core.ConfigSource_ApiConfigSource{ApiConfigSource: &core.ApiConfigSource{
			ApiType: kind, TransportApiVersion: core.ApiVersion_V3,
			GrpcServices: []*core.GrpcService{{TargetSpecifier: &core.GrpcService_EnvoyGrpc_{
				EnvoyGrpc: &core.GrpcService_EnvoyGrpc{ClusterName: "xds-source"},
			}}},
		}},
	}}
}

// cluster is one whose endpoints are a resource of the same name.
func (m maker) cluster(name string) *cluster.Cluster {
	return &cluster.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_EDS},
		EdsClusterConfig:     &cluster.Cluster_EdsClusterConfig{EdsConfig: m.source},
		ConnectTimeout:       durationpb.New(10 * time.Second),
	}
}

// endpoints are those of a cluster; addresses are host:port.
func endpoints(name string, addresses ...string) *endpoint.ClusterLoadAssignment {
	l := &endpoint.LocalityLbEndpoints{}
	for _, address := range addresses {
		l.LbEndpoints = append(l.LbEndpoints, &endpoint.LbEndpoint{
			HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{Address: socketAddress(address)}},
		})
	}
	return &endpoint.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpoint.LocalityLbEndpoints{l}}
}

func socketAddress(address string) *core.Address {
	host, port, err := net.SplitHostPort(address)
	n, err2 := strconv.Atoi(port)
	if err != nil || err2 != nil {
		panic("not an address: " + address) // a test's own mistake
	}
	return &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
		Address: host, PortSpecifier: &core.SocketAddress_PortValue{PortValue: uint32(n)},
	}}}
}

// routes is a route configuration of these routes.
func routes(name string, all ...*route.Route) *route.RouteConfiguration {
	return &route.RouteConfiguration{Name: name, VirtualHosts: []*route.VirtualHost{virtualHost("all", "*", all...)}}
}

func virtualHost(name, domain string, all ...*route.Route) *route.VirtualHost {
	return &route.VirtualHost{Name: name, Domains: []string{domain}, Routes: all}
}

func everything() *route.RouteMatch {
	return &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: "/"}}
}

// to sends everything to a cluster.
func to(cluster string) *route.Route {
	return &route.Route{Match: everything(), Action: &route.Route_Route{Route: &route.RouteAction{
		ClusterSpecifier: &route.RouteAction_Cluster{Cluster: cluster},
	}}}
}

// saying answers everything with a text.
func saying(text string) *route.Route {
	return &route.Route{Match: everything(), Action: &route.Route_DirectResponse{DirectResponse: &route.DirectResponseAction{
		Status: 200, Body: &core.DataSource{Specifier: &core.DataSource_InlineString{InlineString: text}},
	}}}
}

// listener is one on a port that the system chooses, with the routes of a resource.
func (m maker) listener(name, routeName string, changes ...func(*hcm.HttpConnectionManager)) *listener.Listener {
	return m.listenerAt(name, "127.0.0.1:0", routeName, changes...)
}

func (m maker) listenerAt(name, address, routeName string, changes ...func(*hcm.HttpConnectionManager)) *listener.Listener {
	manager := m.manager(name, routeName)
	for _, change := range changes {
		change(manager)
	}
	return &listener.Listener{
		Name: name, Address: socketAddress(address),
		FilterChains: []*listener.FilterChain{{Filters: []*listener.Filter{{
			Name:       "envoy.filters.network.http_connection_manager",
			ConfigType: &listener.Filter_TypedConfig{TypedConfig: mustAny(manager)},
		}}}},
	}
}

// manager says in the body of each error of Envoy's own what it was.
func (m maker) manager(prefix, routeName string) *hcm.HttpConnectionManager {
	return &hcm.HttpConnectionManager{
		StatPrefix:     prefix,
		RouteSpecifier: &hcm.HttpConnectionManager_Rds{Rds: &hcm.Rds{ConfigSource: m.source, RouteConfigName: routeName}},
		HttpFilters: []*hcm.HttpFilter{{
			Name:       "envoy.filters.http.router",
			ConfigType: &hcm.HttpFilter_TypedConfig{TypedConfig: mustAny(&router.Router{})},
		}},
		LocalReplyConfig: &hcm.LocalReplyConfig{Mappers: []*hcm.ResponseMapper{{
			Filter: &accesslog.AccessLogFilter{FilterSpecifier: &accesslog.AccessLogFilter_StatusCodeFilter{
				StatusCodeFilter: &accesslog.StatusCodeFilter{Comparison: &accesslog.ComparisonFilter{
					Op: accesslog.ComparisonFilter_GE, Value: &core.RuntimeUInt32{DefaultValue: 400, RuntimeKey: "said_from"},
				}},
			}},
			BodyFormatOverride: &core.SubstitutionFormatString{
				Format: &core.SubstitutionFormatString_TextFormatSource{TextFormatSource: &core.DataSource{
					Specifier: &core.DataSource_InlineString{InlineString: "%RESPONSE_FLAGS% %LOCAL_REPLY_BODY%\n"},
				}},
			},
		}}},
	}
}

// service is what it takes to reach a backend: the listener "web", the route
// configuration "web", a cluster and its endpoints.
func (m maker) service(name string, addresses ...string) world {
	w := world{}
	w.put(cache.Listener, "web", m.listener("web", "web"))
	w.put(cache.Route, "web", routes("web", to(name)))
	w.put(cache.Cluster, name, m.cluster(name))
	w.put(cache.Endpoint, name, endpoints(name, addresses...))
	return w
}
