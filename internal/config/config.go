// Package config owns the configuration file of the relay: its schema, its
// defaults, and loading it strictly, so that every mistake is reported with
// the line and column where it was made.
//
// It never dials, listens, watches files, reads a clock or logs, and it never
// changes a value behind the reader's back: what [Config] holds is what the
// file, an environment variable or a --set said, or else the default.
// [Config.CheckFiles] is the only function besides [Load] that opens a file.
//
// Limitations: one file, no includes. YAML anchors, aliases, merge keys and
// tags are refused, because they make a value come from somewhere else than
// the line that an error points at. A list is replaced as a whole, both by the
// file and by --set. Comments are not kept, so a file cannot be rewritten.
//
// In the comments below, an id such as UP-13 is a rule of the protocol
// contract, and "Default:" is checked against [Default] by a test.
package config

import (
	"os"
	"time"
)

// APIVersion is the only value of the file's first key that this version reads.
const APIVersion = "xds-relay/v1alpha1"

// Config is the whole configuration. Obtain one from [Default], [Parse] or
// [Load]; a zero Config is not valid.
type Config struct {
	// APIVersion names the format of the file, so that a later one can be
	// refused clearly. It may be left out.
	// Default: xds-relay/v1alpha1.
	APIVersion string `yaml:"apiVersion"`

	// Instance is the name of this relay among its replicas and tiers. It
	// appears in control_plane.identifier (DOWN-DELTA-19).
	// Empty means the host name; see [Config.InstanceName].
	// Default: "".
	Instance string `yaml:"instance"`

	// Upstream is the control plane the relay is a client of.
	Upstream Upstream `yaml:"upstream"`

	// Downstream is the server side, where clients connect.
	Downstream Downstream `yaml:"downstream"`

	// Groups says which clients share one upstream view.
	Groups Groups `yaml:"groups"`

	// Types overrides rows of the built-in table of type properties (section 0
	// of the contract). Types that are not listed keep their row.
	// Default: [].
	Types []TypeOverride `yaml:"types"`

	// Timers are the protocol's waiting times.
	Timers Timers `yaml:"timers"`

	// Cache bounds what is kept although nobody wants it.
	Cache Cache `yaml:"cache"`

	// VersionKeyFile is a file whose bytes, at least 16, are the HMAC key of
	// the versions of Secrets, so that a version tells nothing of a weak
	// secret. All replicas and tiers must have the same (RECON-1, H-35).
	// Empty means plain hashes.
	// Default: "".
	VersionKeyFile string `yaml:"version_key_file"`

	// Admin is the HTTP endpoint for people and probes.
	Admin Admin `yaml:"admin"`

	// Log is the relay's own log, on standard error.
	Log Log `yaml:"log"`

	// prov remembers where each value was written. It is nil in Default().
	prov *provenance
}

// Upstream configures the client side.
type Upstream struct {
	// Address is the gRPC target of the control plane: host:port,
	// dns:///host:port or unix:///path (UP-1).
	// Default: 127.0.0.1:15010.
	Address string `yaml:"address"`

	// Insecure accepts plaintext to an address that is neither loopback nor a
	// Unix socket. It never weakens TLS, so it is refused beside it.
	// Default: false.
	Insecure bool `yaml:"insecure"`

	// TLS secures the connection. All fields empty means plaintext.
	TLS ClientTLS `yaml:"tls"`

	// Node is how the relay introduces itself (UP-2, NODE-7).
	Node Node `yaml:"node"`

	// NodeMode says what node a group sends upstream (NODE-7): static is Node
	// as it stands, template adds the fields of the group's key. Empty means
	// static when groups.key is empty, else template; see
	// [Config.EffectiveNodeMode].
	// Default: "".
	NodeMode NodeMode `yaml:"node_mode"`

	// SendNodeAlways repeats the node in every request, not only in the first
	// of a stream, for servers that need it (UP-2).
	// Default: false.
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

	// InitialVersions says on which new streams the relay tells the server
	// what it already has: always, same_entry (only when the previous stream
	// was to the same upstream entry) or never (RECON-8, H-9).
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

	// Types lists the only types asked for upstream, as type URLs or short
	// names such as CDS; a request for another one is refused, and never
	// reaches a server that would end the shared stream over it (H-39). Empty
	// means all.
	// Default: [].
	Types []string `yaml:"types"`

	// CoalesceWindow gathers the changed interest of many clients into one
	// request per type (UP-6).
	// Default: 10ms.
	CoalesceWindow time.Duration `yaml:"coalesce_window"`
}

// ClientTLS is TLS towards the control plane. Setting any field turns TLS on;
// server_name alone means the system's roots and no client certificate.
type ClientTLS struct {
	// CA is a PEM file with the roots that the server's certificate must chain
	// to. Empty means the system's roots.
	// Default: "".
	CA string `yaml:"ca"`

	// Cert is a PEM file with the relay's client certificate and its chain.
	// Empty means none (NODE-13: the relay authenticates as itself).
	// Default: "".
	Cert string `yaml:"cert"`

	// Key is the PEM file with the private key of Cert.
	// Default: "".
	Key string `yaml:"key"`

	// ServerName is the name the server's certificate must carry. Empty means
	// the host of upstream.address.
	// Default: "".
	ServerName string `yaml:"server_name"`
}

// Enabled reports whether the connection is secured.
func (t ClientTLS) Enabled() bool { return t != ClientTLS{} }

// Node is the relay's own xDS node.
type Node struct {
	// ID is node.id; many servers choose what they send by it (NODE-7).
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
	// Default: 30s.
	Max time.Duration `yaml:"max"`
}

// Downstream configures the server side.
type Downstream struct {
	// Listen lists the addresses to serve on: host:port or unix:///path.
	// Default: ["127.0.0.1:18000"].
	Listen []string `yaml:"listen"`

	// Insecure accepts plaintext on an address that is neither loopback nor a
	// Unix socket. It never weakens TLS, so it is refused beside it.
	// Default: false.
	Insecure bool `yaml:"insecure"`

	// TLS secures all of Listen. All fields empty means plaintext.
	TLS ServerTLS `yaml:"tls"`

	// MaxRequestBytes is the largest request accepted (VALID-8).
	// Default: 64MiB.
	MaxRequestBytes Bytes `yaml:"max_request_bytes"`

	// MaxNameBytes is the longest resource name accepted (VALID-8).
	// Default: 4KiB.
	MaxNameBytes Bytes `yaml:"max_name_bytes"`

	// MaxNamesPerStream is how many names one stream may subscribe to, over
	// all types (VALID-8).
	// Default: 1000000.
	MaxNamesPerStream int `yaml:"max_names_per_stream"`

	// MaxStreamsPerConnection is how many streams one connection may have open
	// (VALID-8).
	// Default: 1000.
	MaxStreamsPerConnection int `yaml:"max_streams_per_connection"`

	// FirstMessageTimeout is how long a stream may stay open without its first
	// request (VALID-8).
	// Default: 10s.
	FirstMessageTimeout time.Duration `yaml:"first_message_timeout"`

	// ResendOnReconnectTypes lists types, as type URLs or short names, that
	// are sent in full to a returning client whatever versions it claims, for
	// clients that report old ones (H-37).
	// Default: [].
	ResendOnReconnectTypes []string `yaml:"resend_on_reconnect_types"`

	// ReadyTypes lists types, as type URLs or short names, that must be
	// complete before the relay is ready. The relay itself subscribes to all
	// of them, in the default group (ERR-14).
	// Default: [].
	ReadyTypes []string `yaml:"ready_types"`

	// Drain is the time over which client streams are ended at shutdown
	// (ERR-14).
	// Default: 10s.
	Drain time.Duration `yaml:"drain"`
}

// ServerTLS is TLS towards the clients.
type ServerTLS struct {
	// Cert is a PEM file with the server's certificate and its chain.
	// Default: "".
	Cert string `yaml:"cert"`

	// Key is the PEM file with the private key of Cert.
	// Default: "".
	Key string `yaml:"key"`

	// ClientCA is a PEM file with the roots that client certificates must
	// chain to; when it is set, a client without a certificate is refused. It
	// is also what makes a client's identity known (NODE-6).
	// Default: "".
	ClientCA string `yaml:"client_ca"`
}

// Enabled reports whether connections are secured.
func (t ServerTLS) Enabled() bool { return t != ServerTLS{} }

// Groups says which clients share one upstream stream and its resources.
// Sharing is right only if the control plane's answers depend on nothing of
// the client's node but the fields of Key (NODE-5).
type Groups struct {
	// Key lists the node fields that tell groups apart: id, cluster,
	// locality.region, locality.zone, locality.sub_zone, user_agent_name,
	// metadata.<path>. Empty means one group for all clients (NODE-4).
	// Default: [].
	Key []string `yaml:"key"`

	// DefaultGroup admits a client whose first message has no node although
	// Key needs one, to a group of its own kind, instead of refusing it
	// (NODE-3).
	// Default: false.
	DefaultGroup bool `yaml:"default_group"`

	// ShareSecrets lets the clients of a group share Secrets like any other
	// type (NODE-6, H-23).
	// Default: false.
	ShareSecrets bool `yaml:"share_secrets"`

	// Max is how many groups, hence upstream streams, may exist (VALID-8).
	// Default: 1000.
	Max int `yaml:"max"`
}

// TypeOverride changes properties of one type.
type TypeOverride struct {
	// TypeURL is the type, as a type URL or a short name. Required.
	TypeURL string `yaml:"type_url"`

	// FullState says that a SotW response of this type is the whole set, so
	// that what it omits is gone (MISS-1). Null keeps the table's value.
	// Default: null.
	FullState *bool `yaml:"full_state"`

	// EmptyMeans is what a first request without names asks for: wildcard or
	// nothing (WILD-2). Empty keeps the table's value.
	// Default: "".
	EmptyMeans EmptyMeans `yaml:"empty_means"`
}

// Timers are the waiting times of the protocol.
type Timers struct {
	// DNETimeout is how long a name may stay unanswered before it is reported
	// as missing (MISS-3).
	// Default: 15s.
	DNETimeout time.Duration `yaml:"dne_timeout"`

	// DNETimeoutExplicit replaces DNETimeout where the upstream answers every
	// name (MISS-5), and delays the sweep of explicit names (RECON-12).
	// Default: 30s.
	DNETimeoutExplicit time.Duration `yaml:"dne_timeout_explicit"`

	// Settle is the silence that ends an initial set whose end the upstream
	// does not mark (RECON-16).
	// Default: 100ms.
	Settle time.Duration `yaml:"settle"`

	// SettleCap bounds the wait for Settle (RECON-16).
	// Default: 5s.
	SettleCap time.Duration `yaml:"settle_cap"`

	// NameLinger is how long a name that nobody wants any more stays
	// subscribed upstream (UP-7, WILD-15).
	// Default: 30s.
	NameLinger time.Duration `yaml:"name_linger"`

	// GroupLinger is how long a group's stream outlives its last client
	// (NODE-10).
	// Default: 60s.
	GroupLinger time.Duration `yaml:"group_linger"`

	// AckTimeout is how long an unacknowledged response holds back the next
	// one of its type (DOWN-DELTA-15).
	// Default: 10s.
	AckTimeout time.Duration `yaml:"ack_timeout"`

	// UnavailableAfter is how long the upstream must have been failing before
	// clients that wait for an answer are told so (ERR-7).
	// Default: 5s.
	UnavailableAfter time.Duration `yaml:"unavailable_after"`
}

// Cache bounds retention. What clients want is never evicted (H-18).
type Cache struct {
	// MaxLingeringNames is how many names that nobody wants may stay
	// subscribed per group, the longest unwanted leaving first (UP-7).
	// Default: 10000.
	MaxLingeringNames int `yaml:"max_lingering_names"`
}

// Admin configures the HTTP admin endpoint.
type Admin struct {
	// Listen is host:port on loopback, or unix:///path; empty: there is none,
	// so that nothing binds that was not asked for. Other addresses are refused
	// in this version, because the endpoint has no authentication.
	// Default: "".
	Listen string `yaml:"listen"`
}

// Log configures the relay's own log.
type Log struct {
	// Level is the least severity that is written: debug, info, warn or error.
	// Default: info.
	Level LogLevel `yaml:"level"`

	// Format is json, text, or auto: text on a terminal, else json.
	// Default: auto.
	Format LogFormat `yaml:"format"`
}

// Default returns the configuration of an empty file. It is valid.
func Default() Config {
	return Config{
		APIVersion: APIVersion,
		Upstream: Upstream{
			Address:         "127.0.0.1:15010",
			Node:            Node{ID: "xds-relay"},
			Backoff:         Backoff{Initial: time.Second, Factor: 1.6, Jitter: 0.2, Max: 30 * time.Second},
			MaxReceiveBytes: 64 * MiB,
			InitialVersions: InitialVersionsSameEntry,
			WildcardForm:    WildcardFormAuto,
			ChunkMarker:     ChunkMarkerAuto,
			ExplicitMissing: SwitchAuto,
			CoalesceWindow:  10 * time.Millisecond,
		},
		Downstream: Downstream{
			Listen:                  []string{"127.0.0.1:18000"},
			MaxRequestBytes:         64 * MiB,
			MaxNameBytes:            4 * KiB,
			MaxNamesPerStream:       1_000_000,
			MaxStreamsPerConnection: 1000,
			FirstMessageTimeout:     10 * time.Second,
			Drain:                   10 * time.Second,
		},
		Groups: Groups{Max: 1000},
		Timers: Timers{
			DNETimeout:         15 * time.Second,
			DNETimeoutExplicit: 30 * time.Second,
			Settle:             100 * time.Millisecond,
			SettleCap:          5 * time.Second,
			NameLinger:         30 * time.Second,
			GroupLinger:        60 * time.Second,
			AckTimeout:         10 * time.Second,
			UnavailableAfter:   5 * time.Second,
		},
		Cache: Cache{MaxLingeringNames: 10_000},
		Log:   Log{Level: LogLevelInfo, Format: LogFormatAuto},
	}
}

// EffectiveNodeMode resolves the empty upstream.node_mode (NODE-7).
func (c *Config) EffectiveNodeMode() NodeMode {
	if c.Upstream.NodeMode != "" {
		return c.Upstream.NodeMode
	}
	if len(c.Groups.Key) == 0 {
		return NodeModeStatic
	}
	return NodeModeTemplate
}

// InstanceName resolves the empty instance to the host name, or to "unknown"
// on a host that has none.
func (c *Config) InstanceName() string {
	if c.Instance != "" {
		return c.Instance
	}
	if h, err := os.Hostname(); err == nil && h != "" {
		return h
	}
	return "unknown"
}
