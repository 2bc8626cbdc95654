package cache

import (
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Mention is the name of a resource that another one refers to, and that its client will ask for where it has got that.
type Mention struct {
	Type TypeURL
	Name string
}

// The fields by which resources refer to others. Each is a path from the message that is named.
var (
	// envoy.config.cluster.v3.Cluster
	clusterEDS = []protowire.Number{fieldClusterEDS}
	edsSource  = []protowire.Number{1} // of EdsClusterConfig

	// envoy.config.listener.v3.Listener: its filters, and those of its chains
	listenerFilters = [][]protowire.Number{{9}, {3, 3}, {25, 3}}
	networkFilters  = [][]protowire.Number{{3, 3, 4}, {25, 3, 4}, {19, 1}} // typed configurations, and api_listener

	// envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
	managerRDS     = []protowire.Number{3}
	managerRoutes  = []protowire.Number{4}
	managerFilters = []protowire.Number{5}
	rdsSource      = []protowire.Number{1} // of Rds

	// Filter, ListenerFilter and HttpFilter agree on these.
	discoverySource = []protowire.Number{5, 1} // config_discovery.config_source

	// envoy.config.route.v3.RouteConfiguration
	routeAction = []protowire.Number{2, 3, 2}
	weighted    = []protowire.Number{3, 1} // of RouteAction
)

const (
	fieldRDSName       = 2 // Rds.route_config_name
	fieldActionCluster = 1 // RouteAction.cluster
	fieldSourceADS     = 3 // envoy.config.core.v3.ConfigSource
	fieldSourceSelf    = 5
	managerURL         = typePrefix + "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
)

// Mentions lists what a Cluster, Listener or RouteConfiguration refers to and is to come from the same control plane
// (UP-28): the endpoints of a Cluster; the routes and extensions of a Listener; the Clusters of routes. Secrets are not
// among them. It reads leniently, and leaves out what it does not understand.
func (r *Resource) Mentions(t TypeURL) (all []Mention) {
	m := mentions{seen: make(map[Mention]bool)}
	for body := range at(r.body, []protowire.Number{fieldBody, fieldAnyValue}) {
		switch t {
		case Cluster:
			m.cluster(body, r.EndpointName)
		case Listener:
			m.listener(body)
		case Route:
			m.routes(body)
		}
	}
	return m.all
}

// Refers reports whether resources of a type may have Mentions.
func (t TypeURL) Refers() bool { return slices.Contains([]TypeURL{Cluster, Listener, Route}, t) }

type mentions struct {
	all  []Mention
	seen map[Mention]bool
}

func (m *mentions) add(t TypeURL, name string) {
	switch at := (Mention{t, Canonical(name)}); {
	case name == "", m.seen[at], !utf8.ValidString(name):
	default:
		m.seen[at], m.all = true, append(m.all, at)
	}
}

func (m *mentions) cluster(body []byte, endpoints string) {
	for eds := range at(body, clusterEDS) {
		if fromHere(eds, edsSource) {
			m.add(Endpoint, endpoints)
		}
	}
}

func (m *mentions) listener(body []byte) {
	for _, path := range listenerFilters {
		for filter := range at(body, path) {
			m.extension(filter)
		}
	}
	for _, path := range networkFilters {
		for config := range at(body, path) {
			if url, _ := stringField(config, fieldAnyTypeURL); url == managerURL {
				for manager := range at(config, []protowire.Number{fieldAnyValue}) {
					m.manager(manager)
				}
			}
		}
	}
}

func (m *mentions) manager(manager []byte) {
	for rds := range at(manager, managerRDS) {
		if fromHere(rds, rdsSource) {
			name, _ := stringField(rds, fieldRDSName)
			m.add(Route, name)
		}
	}
	for routes := range at(manager, managerRoutes) {
		m.routes(routes)
	}
	for filter := range at(manager, managerFilters) {
		m.extension(filter)
	}
}

// extension adds the configuration of a filter that is asked for by the filter's name.
func (m *mentions) extension(filter []byte) {
	if fromHere(filter, discoverySource) {
		name, _ := stringField(filter, fieldBodyName)
		m.add(Extension, name)
	}
}

func (m *mentions) routes(body []byte) {
	for action := range at(body, routeAction) {
		name, _ := stringField(action, fieldActionCluster)
		m.add(Cluster, name)
		for cluster := range at(action, weighted) {
			name, _ := stringField(cluster, fieldBodyName)
			m.add(Cluster, name)
		}
	}
}

// fromHere reports whether the ConfigSource at a path names the control plane that the message came from.
func fromHere(message []byte, path []protowire.Number) (here bool) {
	for source := range at(message, path) {
		eachField(source, func(num protowire.Number, _ protowire.Type, _ []byte) {
			switch num {
			case fieldSourceADS, fieldSourceSelf:
				here = true
			}
		})
	}
	return here
}

// at yields the messages at a path of fields, as far as they can be read.
func at(message []byte, path []protowire.Number) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) { walk(message, path, yield) }
}

func walk(message []byte, path []protowire.Number, yield func([]byte) bool) (more bool) {
	if len(path) == 0 {
		return yield(message)
	}
	more = true
	eachField(message, func(num protowire.Number, typ protowire.Type, value []byte) {
		if more && num == path[0] && typ == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(value)
			more = walk(v, path[1:], yield)
		}
	})
	return more
}
