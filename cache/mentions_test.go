package cache_test

import (
	"reflect"
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
)

// What a resource refers to is read from its real form.
func TestMentions(t *testing.T) {
	ads := &core.ConfigSource{ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}}}
	self := &core.ConfigSource{ConfigSourceSpecifier: &core.ConfigSource_Self{Self: &core.SelfConfigSource{}}}
	other := &core.ConfigSource{ConfigSourceSpecifier: &core.ConfigSource_ApiConfigSource{ApiConfigSource: &core.ApiConfigSource{}}}
	eds := func(source *core.ConfigSource, service string) *cluster.Cluster {
		return &cluster.Cluster{
			Name: "c", ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_EDS},
			EdsClusterConfig: &cluster.Cluster_EdsClusterConfig{EdsConfig: source, ServiceName: service},
		}
	}
	extension := func(name string, source *core.ConfigSource) *hcm.HttpFilter {
		return &hcm.HttpFilter{Name: name, ConfigType: &hcm.HttpFilter_ConfigDiscovery{ConfigDiscovery: &core.ExtensionConfigSource{ConfigSource: source}}}
	}
	manager := func(routes string, source *core.ConfigSource, filters ...*hcm.HttpFilter) *anypb.Any {
		return pack(t, &hcm.HttpConnectionManager{
			RouteSpecifier: &hcm.HttpConnectionManager_Rds{Rds: &hcm.Rds{RouteConfigName: routes, ConfigSource: source}}, HttpFilters: filters,
		})
	}
	chain := func(config *anypb.Any, more ...*listener.Filter) *listener.FilterChain {
		return &listener.FilterChain{Filters: append(more, &listener.Filter{Name: "hcm", ConfigType: &listener.Filter_TypedConfig{TypedConfig: config}})}
	}
	to := func(a *route.RouteAction) *route.Route { return &route.Route{Action: &route.Route_Route{Route: a}} }
	routes := &route.RouteConfiguration{Name: "r", VirtualHosts: []*route.VirtualHost{{Routes: []*route.Route{
		to(&route.RouteAction{ClusterSpecifier: &route.RouteAction_Cluster{Cluster: "a"}}),
		to(&route.RouteAction{ClusterSpecifier: &route.RouteAction_WeightedClusters{WeightedClusters: &route.WeightedCluster{
			Clusters: []*route.WeightedCluster_ClusterWeight{{Name: "a"}, {Name: "b"}},
		}}}),
		to(&route.RouteAction{ClusterSpecifier: &route.RouteAction_ClusterHeader{ClusterHeader: "x-to"}}),
		{Action: &route.Route_DirectResponse{DirectResponse: &route.DirectResponseAction{Status: 200}}},
	}}}}
	type all = []cache.Mention
	for what, c := range map[string]struct {
		of   cache.TypeURL
		body proto.Message
		want all
	}{
		"a service name":      {cache.Cluster, eds(ads, "s"), all{{cache.Endpoint, "s"}}},
		"the cluster's name":  {cache.Cluster, eds(self, ""), all{{cache.Endpoint, "c"}}},
		"another server's":    {cache.Cluster, eds(other, "s"), nil},
		"a static cluster":    {cache.Cluster, &cluster.Cluster{Name: "c"}, nil},
		"clusters of routes":  {cache.Route, routes, all{{cache.Cluster, "a"}, {cache.Cluster, "b"}}},
		"another type's body": {cache.Endpoint, eds(ads, "s"), nil},
		"a listener": {cache.Listener, &listener.Listener{
			ListenerFilters:    []*listener.ListenerFilter{{Name: "lf", ConfigType: &listener.ListenerFilter_ConfigDiscovery{ConfigDiscovery: &core.ExtensionConfigSource{ConfigSource: ads}}}},
			FilterChains:       []*listener.FilterChain{chain(manager("r1", ads, extension("hf", ads), extension("far", other)), &listener.Filter{Name: "nf", ConfigType: &listener.Filter_ConfigDiscovery{ConfigDiscovery: &core.ExtensionConfigSource{ConfigSource: self}}})},
			DefaultFilterChain: chain(manager("r2", self)),
		}, all{{cache.Extension, "lf"}, {cache.Extension, "nf"}, {cache.Route, "r1"}, {cache.Extension, "hf"}, {cache.Route, "r2"}}},
		"an API listener": {cache.Listener, &listener.Listener{ApiListener: &listener.ApiListener{ApiListener: manager("r3", ads)}}, all{{cache.Route, "r3"}}},
		"routes within a listener": {cache.Listener, &listener.Listener{FilterChains: []*listener.FilterChain{chain(pack(t, &hcm.HttpConnectionManager{
			RouteSpecifier: &hcm.HttpConnectionManager_RouteConfig{RouteConfig: routes},
		}))}}, all{{cache.Cluster, "a"}, {cache.Cluster, "b"}}},
	} {
		t.Run(what, func(t *testing.T) {
			r := cache.NewResource(c.of, &discovery.Resource{Name: "n", Resource: pack(t, c.body)}, cache.Fingerprint{})
			if got := r.Mentions(c.of); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func pack(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Whatever the bytes are, reading them ends without harm.
func FuzzMentions(f *testing.F) {
	f.Add([]byte{0x1a, 0x02, 0x1a, 0x00})
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, of := range []cache.TypeURL{cache.Cluster, cache.Listener, cache.Route} {
			r := cache.NewResource(of, &discovery.Resource{Name: "n", Resource: &anypb.Any{Value: body}}, cache.Fingerprint{})
			for _, m := range r.Mentions(of) {
				if m.Name == "" || m.Type == of {
					t.Errorf("%s mentions %v", of.Short(), m)
				}
			}
		}
	})
}
