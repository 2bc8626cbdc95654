// Command controlplane is the control plane of the quickstart: a go-control-plane server
// with a listener, a route configuration, a cluster and its endpoint, which is a second
// listener of the same Envoy, so that nothing else has to run. Every few seconds the route
// changes, so that there is something to see.
//
// It knows nothing of relays, and never will: an Envoy that is connected to it directly
// gets the same. Limitations: every node is given the same; plaintext, on loopback.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

func main() {
	var (
		listen  = flag.String("listen", "127.0.0.1:15010", "address to serve xDS on")
		web     = flag.String("web", "127.0.0.1:10000", "address that Envoy is told to listen on")
		backend = flag.String("backend", "127.0.0.1:10001", "address that Envoy answers at as the service behind it")
		every   = flag.Duration("every", 5*time.Second, "how often the route changes")
	)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, *web, *backend, *every); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, listen, web, backend string, every time.Duration) error {
	snapshots := cache.NewSnapshotCache(true, everyNode{}, nil)
	if err := snapshots.SetSnapshot(ctx, group, snapshot(1, web, backend)); err != nil {
		return err
	}
	xds, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(s, server.NewServer(ctx, snapshots, nil))
	go func() {
		<-ctx.Done()
		s.Stop()
	}()
	log.Printf("serving xDS on %s; Envoy will listen on %s; Ctrl-C ends it", xds.Addr(), web)
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for revision := 2; ; revision++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := snapshots.SetSnapshot(ctx, group, snapshot(revision, web, backend)); err != nil {
				log.Printf("revision %d: %v", revision, err)
				return
			}
			log.Printf("the route is at revision %d", revision)
		}
	}()
	return s.Serve(xds)
}

// group is whom all nodes belong to.
const group = "all"

// everyNode gives every node the same snapshot.
type everyNode struct{}

// ID implements cache.NodeHash.
func (everyNode) ID(*core.Node) string { return group }

// snapshot is all there is. Delta clients are sent what differs between two of them.
func snapshot(revision int, web, backend string) *cache.Snapshot {
	toHello := routes("web", &route.Route{
		Match:  everything(),
		Action: &route.Route_Route{Route: &route.RouteAction{ClusterSpecifier: &route.RouteAction_Cluster{Cluster: "hello"}}},
	})
	toHello.ResponseHeadersToAdd = []*core.HeaderValueOption{{Header: &core.HeaderValue{Key: "x-revision", Value: strconv.Itoa(revision)}}}
	s, err := cache.NewSnapshot(strconv.Itoa(revision), map[resource.Type][]types.Resource{
		resource.ClusterType: {&cluster.Cluster{
			Name:                 "hello",
			ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_EDS},
			EdsClusterConfig:     &cluster.Cluster_EdsClusterConfig{EdsConfig: ads()},
			ConnectTimeout:       durationpb.New(time.Second),
		}},
		resource.EndpointType: {&endpoint.ClusterLoadAssignment{ClusterName: "hello", Endpoints: []*endpoint.LocalityLbEndpoints{{
			LbEndpoints: []*endpoint.LbEndpoint{{HostIdentifier: &endpoint.LbEndpoint_Endpoint{
				Endpoint: &endpoint.Endpoint{Address: address(backend)},
			}}},
		}}}},
		resource.ListenerType: {
			httpListener("web", web, &hcm.HttpConnectionManager{
				RouteSpecifier: &hcm.HttpConnectionManager_Rds{Rds: &hcm.Rds{ConfigSource: ads(), RouteConfigName: "web"}},
			}),
			httpListener("backend", backend, &hcm.HttpConnectionManager{
				RouteSpecifier: &hcm.HttpConnectionManager_RouteConfig{RouteConfig: routes("backend", &route.Route{
					Match: everything(),
					Action: &route.Route_DirectResponse{DirectResponse: &route.DirectResponseAction{
						Status: 200, Body: &core.DataSource{Specifier: &core.DataSource_InlineString{InlineString: "hello from the backend\n"}},
					}},
				})},
			}),
		},
		resource.RouteType: {toHello},
	})
	if err != nil {
		panic(err) // all of these types are known
	}
	return s
}

func httpListener(name, at string, manager *hcm.HttpConnectionManager) *listener.Listener {
	manager.StatPrefix = name
	manager.HttpFilters = []*hcm.HttpFilter{{Name: "router", ConfigType: &hcm.HttpFilter_TypedConfig{TypedConfig: pack(&router.Router{})}}}
	return &listener.Listener{
		Name: name, Address: address(at),
		FilterChains: []*listener.FilterChain{{Filters: []*listener.Filter{{
			Name: "http", ConfigType: &listener.Filter_TypedConfig{TypedConfig: pack(manager)},
		}}}},
	}
}

func routes(name string, all ...*route.Route) *route.RouteConfiguration {
	return &route.RouteConfiguration{Name: name, VirtualHosts: []*route.VirtualHost{{Name: name, Domains: []string{"*"}, Routes: all}}}
}

func everything() *route.RouteMatch {
	return &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: "/"}}
}

func ads() *core.ConfigSource {
	return &core.ConfigSource{
		ResourceApiVersion:    core.ApiVersion_V3,
		ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}},
	}
}

func address(hostport string) *core.Address {
	a, err := net.ResolveTCPAddr("tcp", hostport)
	if err != nil {
		log.Fatalf("controlplane: %q: %v; write 127.0.0.1:10000", hostport, err)
	}
	return &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
		Address: a.IP.String(), PortSpecifier: &core.SocketAddress_PortValue{PortValue: uint32(a.Port)},
	}}}
}

func pack(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err) // it is made here, of strings that are UTF-8
	}
	return a
}
