package config

import (
	"cmp"
	"time"
)

// Upstream configures the client side.
type Upstream struct {
	// Address is the gRPC target of the control plane: host:port,
	// dns:///host:port, unix:///path or unix-abstract:name (UP-1). HTTPS_PROXY and NO_PROXY of the environment
	// hold for it, but not for loopback: the proxy is asked by CONNECT. files:///path is a directory, or a
	// file, with the resources themselves (FS-1). rest+https://host:port/ is a control plane
	// that is asked over REST (REST-11); rest+http:// needs insecure, as any plaintext
	// to other hosts does.
	// Default: 127.0.0.1:15010.
	Address string `yaml:"address"`

	// Insecure accepts plaintext to an address that is neither loopback nor a
	// Unix socket. It has no meaning together with tls, and is refused beside
	// it.
	// Default: false.
	Insecure bool `yaml:"insecure"`

	// TLS secures the connection. All fields empty means plaintext.
	TLS ClientTLS `yaml:"tls"`

	// Headers are sent with every stream to the control plane, for example to
	// authenticate the relay. Names are in lower case; a value is text, or a
	// section (NODE-13). For headers of clients see groups.forward_headers.
	// Default: {}.
	Headers map[string]Header `yaml:"headers"`

	// Mode is the variant spoken to the control plane: delta, sotw, or auto, which
	// is delta and, while the server does not implement it, sotw (UP-16).
	// Default: auto.
	Mode UpstreamMode `yaml:"mode"`

	// Fallbacks are further control planes, in order of preference. The relay
	// turns to the next one when the one in use has been failing for
	// timers.unavailable_after while clients wait for something, or for
	// FailoverAfter in any case. It returns when a preferred one has answered
	// for FailbackAfter (UP-14).
	// Default: [].
	Fallbacks []Fallback `yaml:"fallbacks"`

	// Files is how addresses files:///path are read.
	Files Files `yaml:"files"`

	// REST is how addresses rest+https://host/ are asked.
	REST RESTUpstream `yaml:"rest"`

	// Node is how the relay introduces itself (UP-2, NODE-7).
	Node Node `yaml:"node"`

	// NodeMode says what node a group sends upstream (NODE-7): static is Node
	// as it stands; template adds the fields of the group's key, and an id made
	// of it; passthrough is the client's node, unknown fields kept, and needs
	// node in every key. Empty means passthrough when node is in every key,
	// static when there is no key, else template; see
	// [Config.EffectiveNodeMode].
	// Default: "".
	NodeMode NodeMode `yaml:"node_mode"`

	// SendNodeAlways puts the node into every request, and not only into the
	// first of a stream: some servers choose what to answer by the node of each
	// request (UP-2).
	// Default: true.
	SendNodeAlways bool `yaml:"send_node_always"`

	// Backoff is the wait between attempts that fail before any response (ERR-1).
	Backoff Backoff `yaml:"backoff"`

	// Keepalive is the interval of HTTP/2 pings; 0 is off, else at least 10s.
	// A grpc-go server with its default enforcement answers pings more
	// frequent than every 5m with GOAWAY (UP-13).
	// Default: 0s.
	Keepalive time.Duration `yaml:"keepalive"`

	// MaxReceiveBytes is the largest response accepted (UP-12).
	// Default: 64MiB.
	MaxReceiveBytes Bytes `yaml:"max_receive_bytes"`

	// MaxSetBytes bounds the resources that a group keeps of a type, those of the
	// wildcard and those asked for by name each; 0 is no limit. A response that would
	// exceed it is rejected, and what is there is kept (VALID-8).
	// Default: 2GiB.
	MaxSetBytes Bytes `yaml:"max_set_bytes"`

	// InitialVersions says on which new streams the relay shows the server
	// the versions that it has: always, same_entry (only when the previous
	// stream was to the same upstream entry) or never (RECON-8, H-9).
	// Default: same_entry.
	InitialVersions InitialVersions `yaml:"initial_versions"`

	// WildcardForm is how a wildcard is written: auto, explicit ("*") or
	// legacy (no names) (WILD-10).
	// Default: auto.
	WildcardForm WildcardForm `yaml:"wildcard_form"`

	// ChunkMarker is how the server marks the last part of an initial set:
	// auto (relay, if the server says it is one), none, relay or diderot
	// (RECON-16).
	// Default: auto.
	ChunkMarker ChunkMarker `yaml:"chunk_marker"`

	// ExplicitMissing says that the server reports every missing name, so
	// silence is an error and not an absence: auto (true, if the server says
	// it is a relay), true or false (MISS-5).
	// Default: auto.
	ExplicitMissing Switch `yaml:"explicit_missing"`

	// HealthCheck says whether the relay checks a connection that is silent
	// while an answer is due, with grpc.health.v1.Health/Check: auto, or off for
	// servers whose operators alert on methods they do not know. Any answer
	// shows that the server is alive, UNIMPLEMENTED too. With off, silence about
	// a name counts only once something has come on the stream since the name
	// was asked for (MISS-3).
	// Default: auto.
	HealthCheck HealthCheck `yaml:"health_check"`

	// FailoverAfter is how long the control plane in use may fail before the
	// relay turns to the next one even if no client waits for anything; 0 is
	// never. While clients wait for something timers.unavailable_after
	// applies (UP-14).
	// Default: 60s.
	FailoverAfter time.Duration `yaml:"failover_after"`

	// FailbackAfter is how long a preferred control plane must have answered
	// before the relay returns to it. Each return that does not last doubles
	// it, up to 30m (UP-14).
	// Default: 30s.
	FailbackAfter time.Duration `yaml:"failback_after"`

	// MaxRequestBytes is the largest request sent: a longer list of names goes
	// over several. A control plane that speaks SotW takes a list only as a
	// whole: names that do not fit are left out, those that were asked for last
	// (UP-21). Servers of grpc-go and grpc-java take 4 MiB by default (UP-17).
	// Default: 3MiB.
	MaxRequestBytes Bytes `yaml:"max_request_bytes"`

	// MaxStreamsPerConnection is how many streams share one connection; one of
	// them is kept free for HealthCheck. Further groups get another
	// connection. Envoy, nginx and load balancers allow 100 to 128 (UP-1).
	// Default: 100.
	MaxStreamsPerConnection int `yaml:"max_streams_per_connection"`

	// MaxConnections is how many connections the relay makes to one control plane (UP-1).
	// Default: 64.
	MaxConnections int `yaml:"max_connections"`

	// Types lists the only types that the relay asks the control plane for,
	// as type URLs or short names such as CDS. It refuses requests for other
	// types, so that they never reach a server that would end the shared
	// stream (H-39). Empty means all.
	// Default: [].
	Types []string `yaml:"types"`

	// CoalesceWindow gathers the changed interest of many clients into one
	// request per type, at most until the last request is answered. A change
	// that comes after that goes up at once (UP-6).
	// Default: 10ms.
	CoalesceWindow time.Duration `yaml:"coalesce_window"`

	// Prefetch says whether the relay asks for what clients will ask for next
	// before they do: the endpoints of Clusters, the routes and extensions of
	// Listeners, the Clusters of routes, and Listeners along with Clusters:
	// auto (of types that the control plane has answered before, and not with
	// authz.rules_file), or off (UP-28).
	// Default: auto.
	Prefetch Prefetch `yaml:"prefetch"`

	// PrefetchExcept lists types that are not asked for in this way, as type
	// URLs or short names.
	// Default: [].
	PrefetchExcept []string `yaml:"prefetch_except"`

	// ByType lists control planes that are asked for some types. Each listed
	// type is asked of that control plane and of no other, and its groups have
	// streams, back-off and fallbacks of their own. At most 16 (UP-27).
	// Default: [].
	ByType []TypeUpstream `yaml:"by_type"`
}

// Fallback is a control plane to turn to when the preferred one cannot be reached.
// Everything else is as in upstream.
type Fallback struct {
	// Address is its gRPC target, as upstream.address. It must be given.
	// Default: "".
	Address string `yaml:"address"`

	// Insecure accepts plaintext to it, as upstream.insecure.
	// Default: false.
	Insecure bool `yaml:"insecure"`

	// TLS secures the connection to it; it inherits nothing from upstream.tls.
	TLS ClientTLS `yaml:"tls"`

	// Headers are sent with every stream to it; it inherits none from
	// upstream.headers.
	// Default: {}.
	Headers map[string]Header `yaml:"headers"`

	// ForwardHeaders sends it the client headers that groups.forward_headers
	// names, as to upstream.address. Without it, this control plane answers
	// for these groups without knowing whose they are (NODE-13).
	// Default: false.
	ForwardHeaders bool `yaml:"forward_headers"`

	// Mode is the variant spoken to it. Empty means upstream.mode.
	// Default: "".
	Mode FallbackMode `yaml:"mode"`

	// LastResort means that it is used only when all others have been failing for
	// timers.unavailable_after and a client waits for something of which there is no
	// copy at all, and only for that: it replaces nothing and removes nothing. The
	// first answer of another one ends it. Only the last of the list can be it. Null is
	// true for files:///path, else false (UP-26).
	// Default: null.
	LastResort *bool `yaml:"last_resort"`
}

// ClientTLS is TLS towards the control plane. Setting any field but alpn turns TLS
// on; server_name alone means the system's roots and no client certificate.
// Changed files are used for new connections within a second or, where the system
// does not report changes, a minute; open connections live on. If the files cannot
// be used, the last good ones stay in use, and the log says so.
type ClientTLS struct {
	// CA is a PEM file with the roots that the server's certificate must chain
	// to. Empty means the system's roots. To change the authority, put the old
	// and the new one into it for a while.
	// Default: "".
	CA string `yaml:"ca"`

	// Cert is a PEM file with the relay's client certificate and its chain.
	// Empty means none (NODE-13).
	// Default: "".
	Cert string `yaml:"cert"`

	// Key is the PEM file with the private key of Cert.
	// Default: "".
	Key string `yaml:"key"`

	// ServerName is the name the server's certificate must carry. Empty means
	// the host of the address.
	// Default: "".
	ServerName string `yaml:"server_name"`

	// ALPN says what to do with a server that selects no application protocol in
	// the handshake, although HTTP/2 demands one: require refuses the server,
	// lenient assumes that it speaks HTTP/2, as Consul does. A server that
	// selects another protocol than h2 is always refused.
	// Default: require.
	ALPN ALPN `yaml:"alpn"`

	// SPIFFE takes certificate and authorities from an agent instead of files.
	SPIFFE ClientSPIFFE `yaml:"spiffe"`
}

// Enabled reports whether the connection is secured.
func (t ClientTLS) Enabled() bool {
	return cmp.Or(t.CA, t.Cert, t.Key, t.ServerName) != "" || t.SPIFFE.Enabled()
}

// Node is the relay's own xDS node.
type Node struct {
	// ID is node.id; many servers choose their answers by it (NODE-7).
	// Default: xds-relay.
	ID string `yaml:"id"`

	// Cluster is node.cluster.
	// Default: "".
	Cluster string `yaml:"cluster"`

	// Locality is node.locality.
	Locality Locality `yaml:"locality"`

	// Metadata is node.metadata, a JSON-like object. Numbers travel as
	// doubles, so an integer beyond 2^53 must be written as text.
	// Default: {}.
	Metadata map[string]any `yaml:"metadata"`
}

// Locality says where the relay runs.
type Locality struct {
	// Region is node.locality.region.
	// Default: "".
	Region string `yaml:"region"`

	// Zone is node.locality.zone.
	// Default: "".
	Zone string `yaml:"zone"`

	// SubZone is node.locality.sub_zone.
	// Default: "".
	SubZone string `yaml:"sub_zone"`
}

// Backoff is exponential with jitter (ERR-1).
type Backoff struct {
	// Initial is the wait after the first failure.
	// Default: 1s.
	Initial time.Duration `yaml:"initial"`

	// Factor multiplies the wait after each further failure; at least 1.
	// Default: 1.6.
	Factor float64 `yaml:"factor"`

	// Jitter is the part of the wait that is random, to either side; 0 to 1.
	// Default: 0.2.
	Jitter float64 `yaml:"jitter"`

	// Max is the longest wait, before jitter.
	// Default: 10s.
	Max time.Duration `yaml:"max"`
}
