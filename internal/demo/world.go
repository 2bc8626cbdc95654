package demo

import (
	"cmp"
	"fmt"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
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
// in its metadata, so that a client can tell how new its copy is. Envoy's generated
// types are not used here, as the tests do that compare with them: they would be in
// every relay, and a sixth of it.
func resource(t cache.TypeURL, name string, revision int) *anypb.Any {
	var fields [][]byte
	switch t {
	case cache.Cluster:
		const eds = 3
		fields = [][]byte{
			text(1, name),
			enum(2, eds),
			message(3, encoded(1, ads()), text(2, name)), // eds_cluster_config: eds_config, service_name
			encoded(4, durationpb.New(5*time.Second)),    // connect_timeout
			encoded(25, revisionMetadata(revision)),
		}
	case cache.Endpoint:
		locality := [][]byte{
			encoded(1, &core.Locality{Region: "local", Zone: "a"}),
			encoded(9, revisionMetadata(revision)),
		}
		for i := range 3 {
			at := address(fmt.Sprintf("10.0.%d.%d", revision%256, i+1), 8080)
			locality = append(locality, message(2, message(1, encoded(1, at)))) // lb_endpoints: endpoint: address
		}
		fields = [][]byte{
			text(1, name), // cluster_name
			message(2, locality...),
		}
	case cache.Route:
		toCluster := [][]byte{
			message(1, text(1, "/")),  // match: prefix
			message(2, text(1, name)), // route: cluster
		}
		fields = [][]byte{
			text(1, name),
			message(2, text(1, name), text(2, "*"), message(3, toCluster...)), // virtual_hosts: name, domains, routes
		}
	case cache.Listener:
		manager := [][]byte{
			message(3, encoded(1, ads()), text(2, name)),                                                         // rds: config_source, route_config_name
			message(5, text(1, "router"), encoded(4, &anypb.Any{TypeUrl: extensions + "http.router.v3.Router"})), // http_filters: name, typed_config
		}
		fields = [][]byte{
			text(1, name),
			message(19, encoded(1, &anypb.Any{ // api_listener
				TypeUrl: extensions + "network.http_connection_manager.v3.HttpConnectionManager", Value: joined(manager...),
			})),
		}
	}
	return &anypb.Any{TypeUrl: string(t), Value: joined(fields...)}
}

const extensions = "type.googleapis.com/envoy.extensions.filters."

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
func decode(t cache.TypeURL, body []byte) (c content, err error) {
	b := reader{body: body}
	c.name = b.text(1)
	switch t {
	case cache.Cluster:
		c.refers = cmp.Or(b.text(3, 2), c.name) // eds_cluster_config: service_name
		c.revision, err = revisionIn(b.bytes(25))
	case cache.Endpoint:
		c.revision, err = revisionIn(b.bytes(2, 9)) // endpoints: metadata
	case cache.Route:
		c.refers = b.text(2, 3, 2, 1) // virtual_hosts: routes: route: cluster
	case cache.Listener:
		c.refers = b.text(19, 1, 2, 3, 2) // api_listener: api_listener: value: rds: route_config_name
	default:
		return c, fmt.Errorf("a client of the demo does not know the type %s", t)
	}
	if err == nil {
		err = b.err
	}
	return c, err
}

func revisionIn(metadata []byte) (int, error) {
	var m core.Metadata
	if err := proto.Unmarshal(metadata, &m); err != nil {
		return 0, err
	}
	return int(m.GetFilterMetadata()[metadataKey].GetFields()["revision"].GetNumberValue()), nil
}
