package cache

import (
	"maps"
	"slices"
	"strings"
)

// TypeURL names a resource type as it stands on the wire, for example
// "type.googleapis.com/envoy.config.cluster.v3.Cluster". Any string is a valid
// TypeURL: the relay carries types that its code has never seen (VALID-6).
type TypeURL string

const typePrefix = "type.googleapis.com/"

// The types that the protocol gives properties of their own (protocol.md §0).
const (
	Listener     TypeURL = typePrefix + "envoy.config.listener.v3.Listener"
	Cluster      TypeURL = typePrefix + "envoy.config.cluster.v3.Cluster"
	ScopedRoute  TypeURL = typePrefix + "envoy.config.route.v3.ScopedRouteConfiguration"
	Route        TypeURL = typePrefix + "envoy.config.route.v3.RouteConfiguration"
	Endpoint     TypeURL = typePrefix + "envoy.config.endpoint.v3.ClusterLoadAssignment"
	Secret       TypeURL = typePrefix + "envoy.extensions.transport_sockets.tls.v3.Secret"
	Runtime      TypeURL = typePrefix + "envoy.service.runtime.v3.Runtime"
	Extension    TypeURL = typePrefix + "envoy.config.core.v3.TypedExtensionConfig"
	VirtualHost  TypeURL = typePrefix + "envoy.config.route.v3.VirtualHost"
	LocalityHost TypeURL = typePrefix + "envoy.config.endpoint.v3.LbEndpoint"
)

// ofV2 are the types of the v2 API that have another URL in the current one, whose row they share, whatever the
// transport (V2-2).
var ofV2 = map[TypeURL]TypeURL{
	typePrefix + "envoy.api.v2.Listener":                 Listener,
	typePrefix + "envoy.api.v2.Cluster":                  Cluster,
	typePrefix + "envoy.api.v2.ScopedRouteConfiguration": ScopedRoute,
	typePrefix + "envoy.api.v2.RouteConfiguration":       Route,
	typePrefix + "envoy.api.v2.ClusterLoadAssignment":    Endpoint,
	typePrefix + "envoy.api.v2.auth.Secret":              Secret,
	typePrefix + "envoy.service.discovery.v2.Runtime":    Runtime,
	typePrefix + "envoy.api.v2.route.VirtualHost":        VirtualHost,
}

// V3 is the type of the current API for which a type of the v2 API stands; any other type stands for itself.
func (t TypeURL) V3() TypeURL {
	if now, ok := ofV2[t]; ok {
		return now
	}
	return t
}

// V2 is the type of the v2 API that stands for a type of the current one, or "".
func (t TypeURL) V2() TypeURL {
	for old, now := range ofV2 {
		if now == t {
			return old
		}
	}
	return ""
}

// Properties are what the protocol makes depend on a resource type.
type Properties struct {
	// FullState: a SotW response lists every resource of the client's view, and
	// one that is missing from it is deleted (DOWN-SOTW-6, TRANSLATE-6).
	FullState bool
	// EmptyIsWildcard: a first request that names nothing asks for everything
	// (WILD-2, rows a and b).
	EmptyIsWildcard bool
	// Secret: whoever is not served a resource of the type must not learn what is in it. Its
	// clients share it only if they may (NODE-6); its versions, by which a guess of a weak
	// secret could be checked, are not shown, and keyed if there is a key (RECON-1); it is not
	// on disk in the clear (RECON-19).
	Secret bool
}

type wellKnown struct {
	short string
	rank  int
	Properties
	// unnamed: its messages do not hold their own names (TRANSLATE-2).
	unnamed bool
	// goesLast: its removals go last (ReplacesAtOnce).
	goesLast bool
	basic    bool // every control plane knows it (Basic)
}

// table is the type table of protocol.md §0; rank is the order of ORDER-2.
var table = map[TypeURL]*wellKnown{
	Listener:     {"LDS", 4, Properties{FullState: true, EmptyIsWildcard: true}, false, false, true},
	Cluster:      {"CDS", 1, Properties{FullState: true, EmptyIsWildcard: true}, false, true, true},
	ScopedRoute:  {"SRDS", 5, Properties{FullState: true, EmptyIsWildcard: true}, false, false, false},
	Route:        {"RDS", 6, Properties{}, false, false, true},
	Endpoint:     {"EDS", 2, Properties{}, false, true, true},
	Secret:       {"SDS", 0, Properties{Secret: true}, false, true, true},
	Runtime:      {"RTDS", 8, Properties{}, false, true, false},
	Extension:    {"ECDS", 9, Properties{}, false, true, false},
	VirtualHost:  {"VHDS", 7, Properties{EmptyIsWildcard: true}, true, false, false},
	LocalityHost: {"LEDS", 3, Properties{EmptyIsWildcard: true}, true, true, false},
}

// rows are the table with the types of the v2 API.
var rows = func() map[TypeURL]*wellKnown {
	all := maps.Clone(table)
	for old, now := range ofV2 {
		all[old] = table[now]
	}
	return all
}()

// other is the last row of the type table: every type the table does not name.
var other = wellKnown{OtherShort, len(table), Properties{EmptyIsWildcard: true}, false, false, false}

// otherSecret is the same for a Secret under another URL.
var otherSecret = wellKnown{OtherShort, len(table), Properties{EmptyIsWildcard: true, Secret: true}, false, false, false}

// secretMessages are secret whatever stands before the slash, which some control planes do not look at, and
// in either version of the API.
var secretMessages = []string{"envoy.extensions.transport_sockets.tls.v3.Secret", "envoy.api.v2.auth.Secret"}

// row is the type's row of the type table.
func (t TypeURL) row() *wellKnown {
	if k, ok := rows[t]; ok {
		return k
	}
	if slices.Contains(secretMessages, string(t[strings.LastIndexByte(string(t), '/')+1:])) {
		return &otherSecret
	}
	return &other
}

// OtherShort is what Short answers for a type outside the type table.
const OtherShort = "other"

// Short is the type's abbreviation ("CDS"), or OtherShort. It is a closed set,
// and so fit for a metric label. Types of the v2 API have that of the current one; see Name.
func (t TypeURL) Short() string { return t.row().short }

// Name is what people and nonces call the type: its abbreviation, or the whole URL of a type without one of its own.
func (t TypeURL) Name() string {
	if k, ok := table[t]; ok {
		return k.short
	}
	return string(t)
}

// Shorts are all that Short may answer, in order.
func Shorts() []string {
	shorts := []string{OtherShort}
	for _, k := range table {
		shorts = append(shorts, k.short)
	}
	slices.Sort(shorts)
	return shorts
}

// shared are the types of the type table, with the bytes that Shared gives to all.
var shared = append(WellKnown(), slices.Sorted(maps.Keys(ofV2))...)

// Shared is the same type; if it is in the type table, with bytes that everybody shares. A comparison
// then need not look at them, and a client of many takes no memory for them.
func (t TypeURL) Shared() TypeURL {
	if i := slices.Index(shared, t); i >= 0 {
		return shared[i]
	}
	return t
}

// WellKnown are the types of the type table, those of the v2 API not among them, in the order of their Rank.
func WellKnown() []TypeURL {
	return slices.SortedFunc(maps.Keys(table), func(a, b TypeURL) int { return a.Rank() - b.Rank() })
}

// Rank orders types for make-before-break: what others refer to comes first, types
// outside the table last (ORDER-2).
func (t TypeURL) Rank() int { return t.row().rank }

// Basic reports whether the type is one that control planes know in any case: LDS, CDS, EDS, RDS or
// SDS of the current API (UP-21).
func (t TypeURL) Basic() bool { return table[t] != nil && table[t].basic }

// ReplacesAtOnce reports whether what replaces a resource must come in the same response as its
// removal: a client rejects a listener, scope or virtual host that takes the address, key or domains
// of one that it still has (ORDER-2). A new version of another type's resource keeps the name, and
// what goes may still be referred to, so it goes last.
func (t TypeURL) ReplacesAtOnce() bool { return !t.row().goesLast }

// Types is the type table together with the operator's overrides.
// The zero value is the table as protocol.md has it.
type Types map[TypeURL]Properties

// Of returns a type's properties.
func (o Types) Of(t TypeURL) Properties {
	if p, ok := o[t]; ok {
		return p
	}
	return t.row().Properties
}
