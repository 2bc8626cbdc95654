package demo

import (
	"fmt"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xds-relay/xds-relay/cache"
)

// Envoy's own types read from a resource what the demo means by it, and the demo reads what
// they write.
func TestResourcesAreEnvoys(t *testing.T) {
	pack := func(m proto.Message) *anypb.Any {
		t.Helper()
		a, err := anypb.New(m)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	locality := &endpoint.LocalityLbEndpoints{Locality: &core.Locality{Region: "local", Zone: "a"}, Metadata: revisionMetadata(7)}
	for i := range 3 {
		locality.LbEndpoints = append(locality.LbEndpoints, &endpoint.LbEndpoint{HostIdentifier: &endpoint.LbEndpoint_Endpoint{
			Endpoint: &endpoint.Endpoint{Address: address(fmt.Sprintf("10.0.7.%d", i+1), 8080)},
		}})
	}
	for typ, want := range map[cache.TypeURL]struct {
		message proto.Message
		content content
	}{
		cache.Cluster: {&cluster.Cluster{
			Name:                 "cart",
			ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_EDS},
			EdsClusterConfig:     &cluster.Cluster_EdsClusterConfig{EdsConfig: ads(), ServiceName: "cart"},
			ConnectTimeout:       durationpb.New(5 * time.Second),
			Metadata:             revisionMetadata(7),
		}, content{"cart", 7, "cart"}},
		cache.Endpoint: {
			&endpoint.ClusterLoadAssignment{ClusterName: "cart", Endpoints: []*endpoint.LocalityLbEndpoints{locality}},
			content{"cart", 7, ""},
		},
		cache.Route: {&route.RouteConfiguration{Name: "cart", VirtualHosts: []*route.VirtualHost{{
			Name: "cart", Domains: []string{"*"},
			Routes: []*route.Route{{
				Match:  &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: "/"}},
				Action: &route.Route_Route{Route: &route.RouteAction{ClusterSpecifier: &route.RouteAction_Cluster{Cluster: "cart"}}},
			}},
		}}}, content{"cart", 0, "cart"}},
		cache.Listener: {&listener.Listener{Name: "cart", ApiListener: &listener.ApiListener{ApiListener: pack(&hcm.HttpConnectionManager{
			RouteSpecifier: &hcm.HttpConnectionManager_Rds{Rds: &hcm.Rds{ConfigSource: ads(), RouteConfigName: "cart"}},
			HttpFilters:    []*hcm.HttpFilter{{Name: "router", ConfigType: &hcm.HttpFilter_TypedConfig{TypedConfig: pack(&router.Router{})}}},
		})}}, content{"cart", 0, "cart"}},
	} {
		r := resource(typ, "cart", 7)
		m, err := r.UnmarshalNew()
		// As text, since the fields within an Any may stand in another order.
		if got := prototext.Format(m); err != nil || got != prototext.Format(want.message) {
			t.Errorf("%s is read as %s, %v\nnot as %s", typ, got, err, prototext.Format(want.message))
		}
		for _, body := range [][]byte{r.GetValue(), pack(want.message).GetValue()} {
			if got, err := decode(typ, body); err != nil || got != want.content {
				t.Errorf("%s: the client reads %+v, %v, not %+v", typ, got, err, want.content)
			}
		}
		if _, err := decode(typ, r.GetValue()[:len(r.GetValue())-1]); err == nil {
			t.Errorf("%s: the client takes a body that is cut off", typ)
		}
	}
}
