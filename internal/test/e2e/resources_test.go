package e2e

import (
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	gcptypes "github.com/envoyproxy/go-control-plane/pkg/cache/types"
	gcp "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xds-relay/xds-relay/cache"
)

// Every maker of a resource takes a revision, which revisionOf reads back, so that
// a test can tell how new a copy is.

func ads() *core.ConfigSource {
	return &core.ConfigSource{
		ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}},
		ResourceApiVersion:    core.ApiVersion_V3,
	}
}

// edsCluster is a cluster whose endpoints are a resource of the same name.
func edsCluster(name string, revision int) *cluster.Cluster {
	return &cluster.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_EDS},
		EdsClusterConfig:     &cluster.Cluster_EdsClusterConfig{EdsConfig: ads()},
		ConnectTimeout:       durationpb.New(time.Second + time.Duration(revision)*time.Nanosecond),
	}
}

// staticCluster is a cluster without endpoints.
func staticCluster(name string, revision int) *cluster.Cluster {
	return &cluster.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_STATIC},
		ConnectTimeout:       durationpb.New(time.Second + time.Duration(revision)*time.Nanosecond),
	}
}

// endpoints are those of a cluster; addresses are host:port.
func endpoints(name string, revision int, addresses ...string) *endpoint.ClusterLoadAssignment {
	a := &endpoint.ClusterLoadAssignment{ClusterName: name, Policy: &endpoint.ClusterLoadAssignment_Policy{
		OverprovisioningFactor: wrapperspb.UInt32(uint32(140 + revision)),
	}}
	if len(addresses) == 0 {
		return a
	}
	l := &endpoint.LocalityLbEndpoints{
		Locality:            &core.Locality{Region: "r", Zone: "z"},
		LoadBalancingWeight: wrapperspb.UInt32(1),
	}
	for _, address := range addresses {
		l.LbEndpoints = append(l.LbEndpoints, &endpoint.LbEndpoint{
			HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{Address: socketAddress(address)}},
		})
	}
	a.Endpoints = []*endpoint.LocalityLbEndpoints{l}
	return a
}

func socketAddress(address string) *core.Address {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		panic(err) // a test's own mistake
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		panic(err)
	}
	return &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
		Address: host, PortSpecifier: &core.SocketAddress_PortValue{PortValue: uint32(n)},
	}}}
}

// routeTo is a route configuration that sends everything to one cluster.
func routeTo(name string, revision int, cluster string) *route.RouteConfiguration {
	return &route.RouteConfiguration{
		Name: name,
		VirtualHosts: []*route.VirtualHost{{
			Name:    strconv.Itoa(revision),
			Domains: []string{"*"},
			Routes: []*route.Route{{
				Match: &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: ""}},
				Action: &route.Route_Route{Route: &route.RouteAction{
					ClusterSpecifier: &route.RouteAction_Cluster{Cluster: cluster},
				}},
			}},
		}},
	}
}

// apiListener is a listener as a gRPC client uses it, which takes its routes from
// a resource of the given name.
func apiListener(name string, revision int, routeName string) *listener.Listener {
	return &listener.Listener{
		Name:        name,
		StatPrefix:  strconv.Itoa(revision),
		ApiListener: &listener.ApiListener{ApiListener: mustAny(manager(ads(), routeName))},
	}
}

// serverListener is a listener as a gRPC server uses it.
func serverListener(name, address, routeName string) *listener.Listener {
	return &listener.Listener{
		Name:    name,
		Address: socketAddress(address),
		DefaultFilterChain: &listener.FilterChain{Name: "default", Filters: []*listener.Filter{{
			Name:       "hcm",
			ConfigType: &listener.Filter_TypedConfig{TypedConfig: mustAny(manager(ads(), routeName))},
		}}},
	}
}

// serverRoutes let a gRPC server take in everything.
func serverRoutes(name string) *route.RouteConfiguration {
	return &route.RouteConfiguration{
		Name: name,
		VirtualHosts: []*route.VirtualHost{{
			Name: "all", Domains: []string{"*"},
			Routes: []*route.Route{{
				Match:  &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: "/"}},
				Action: &route.Route_NonForwardingAction{NonForwardingAction: &route.NonForwardingAction{}},
			}},
		}},
	}
}

func manager(from *core.ConfigSource, routeName string) *hcm.HttpConnectionManager {
	return &hcm.HttpConnectionManager{
		RouteSpecifier: &hcm.HttpConnectionManager_Rds{Rds: &hcm.Rds{ConfigSource: from, RouteConfigName: routeName}},
		HttpFilters: []*hcm.HttpFilter{{
			Name:       "router",
			ConfigType: &hcm.HttpFilter_TypedConfig{TypedConfig: mustAny(&router.Router{})},
		}},
	}
}

func mustAny(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err) // these messages are made here; they can be encoded
	}
	return a
}

// revisionOf reads the revision out of a resource's bytes, and out of nothing else
// there, because hundreds of clients are asked for it again and again.
func revisionOf(u cache.TypeURL, body []byte) (int, error) {
	switch u {
	case cache.Cluster:
		return int(number(field(body, 4), 2)), nil // the nanoseconds of connect_timeout
	case cache.Endpoint:
		return int(number(field(field(body, 4), 3), 1)) - 140, nil
	case cache.Route:
		return strconv.Atoi(string(field(field(body, 2), 1)))
	case cache.Listener:
		return strconv.Atoi(string(field(body, 28)))
	}
	return 0, fmt.Errorf("resources of type %s have no revision", u)
}

// routeNameOf is the route configuration that a listener uses.
func routeNameOf(body []byte) string {
	var l listener.Listener
	var m hcm.HttpConnectionManager
	if proto.Unmarshal(body, &l) != nil || l.GetApiListener().GetApiListener().UnmarshalTo(&m) != nil {
		return ""
	}
	return m.GetRds().GetRouteConfigName()
}

// nameIn is field 1 of a resource, where all types of these tests have the name.
func nameIn(body []byte) string { return string(field(body, 1)) }

// edsNameIn is the name of the endpoints that a cluster uses. It does not decode
// the whole cluster, because hundreds of clients ask it of a thousand each.
func edsNameIn(body []byte) (name string, ok bool) {
	eds := field(body, 3)
	if eds == nil {
		return "", false
	}
	if service := field(eds, 2); len(service) > 0 {
		return string(service), true
	}
	return nameIn(body), true
}

// field is a message's first field of a number that has a length, or nil.
func field(body []byte, n protowire.Number) []byte {
	value, _ := protowire.ConsumeBytes(find(body, n, protowire.BytesType))
	return value
}

// number is a message's first integer field of a number, or 0.
func number(body []byte, n protowire.Number) uint64 {
	value, _ := protowire.ConsumeVarint(find(body, n, protowire.VarintType))
	return value
}

// find is where the value of a field begins, or nil.
func find(body []byte, n protowire.Number, kind protowire.Type) []byte {
	for len(body) > 0 {
		number, k, size := protowire.ConsumeTag(body)
		if size < 0 {
			return nil
		}
		body = body[size:]
		if number == n && k == kind {
			return body
		}
		if size = protowire.ConsumeFieldValue(number, k, body); size < 0 {
			return nil
		}
		body = body[size:]
	}
	return nil
}

// linear is a control plane's world with one LinearCache for each type. A type
// without one makes it end the stream, as MuxCache does (H-39).
type linear struct {
	t      testing.TB
	caches map[cache.TypeURL]*gcp.LinearCache
}

var usualTypes = []cache.TypeURL{cache.Listener, cache.Cluster, cache.Route, cache.Endpoint}

func newLinear(t testing.TB, types ...cache.TypeURL) *linear {
	w := &linear{t: t, caches: make(map[cache.TypeURL]*gcp.LinearCache)}
	if len(types) == 0 {
		types = usualTypes
	}
	for _, u := range types {
		w.caches[u] = gcp.NewLinearCache(string(u))
	}
	return w
}

// Mux is the world as one cache.
func (w *linear) Mux() gcp.Cache {
	m := &gcp.MuxCache{
		Classify:      func(r *gcp.Request) string { return r.GetTypeUrl() },
		ClassifyDelta: func(r *gcp.DeltaRequest) string { return r.GetTypeUrl() },
		Caches:        make(map[string]gcp.Cache),
	}
	for u, c := range w.caches {
		m.Caches[string(u)] = c
	}
	return m
}

// Set adds or changes a resource.
func (w *linear) Set(u cache.TypeURL, name string, r gcptypes.Resource) {
	w.t.Helper()
	if err := w.caches[u].UpdateResource(name, r); err != nil {
		w.t.Error(err)
	}
}

// Fill adds many resources at once.
func (w *linear) Fill(u cache.TypeURL, resources map[string]gcptypes.Resource) {
	w.t.Helper()
	if err := w.caches[u].UpdateResources(resources, nil); err != nil {
		w.t.Error(err)
	}
}

// Delete removes a resource.
func (w *linear) Delete(u cache.TypeURL, name string) {
	w.t.Helper()
	if err := w.caches[u].DeleteResource(name); err != nil {
		w.t.Error(err)
	}
}

// service adds what it takes to reach a service: a listener, its route, the
// cluster and its endpoints, all under names made of one.
func (w *linear) service(name string, addresses ...string) {
	w.t.Helper()
	w.Set(cache.Endpoint, name+"-cluster", endpoints(name+"-cluster", 1, addresses...))
	w.Set(cache.Cluster, name+"-cluster", edsCluster(name+"-cluster", 1))
	w.Set(cache.Route, name+"-route", routeTo(name+"-route", 1, name+"-cluster"))
	w.Set(cache.Listener, name, apiListener(name, 1, name+"-route"))
}

// revised is a resource of the service "a" at a revision.
func revised(u cache.TypeURL, revision int) gcptypes.Resource {
	switch u {
	case cache.Listener:
		return apiListener("a", revision, "a-route")
	case cache.Route:
		return routeTo("a-route", revision, "a-cluster")
	case cache.Cluster:
		return edsCluster("a-cluster", revision)
	default:
		return endpoints("a-cluster", revision, "127.0.0.1:1")
	}
}
