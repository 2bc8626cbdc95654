package config

import (
	"cmp"
	"time"
)

// Downstream configures the server side.
type Downstream struct {
	// Listen lists the addresses to serve on: host:port, unix:///path or, on Linux, unix-abstract:name, to
	// which everybody in the same network namespace can connect.
	// Default: ["127.0.0.1:18000"].
	Listen []string `yaml:"listen"`

	// Insecure accepts plaintext on an address that is neither loopback nor a
	// Unix socket. It has no meaning together with tls, and is refused beside
	// it.
	// Default: false.
	Insecure bool `yaml:"insecure"`

	// TLS secures all of Listen. All fields empty means plaintext.
	TLS ServerTLS `yaml:"tls"`

	// Relays lists the clients that are relays, by their identities, as in
	// tls.client_ca: spiffe://…, dns:… or subject:…. Clients on loopback and Unix
	// sockets count as relays without being listed. Only a relay may say by which
	// other relays it comes, so a loop over two hosts is found only if each of them
	// lists the other (NODE-11). A listed one is also believed for which client it
	// speaks: see groups.send_identity.
	// Default: [].
	Relays []string `yaml:"relays"`

	// MaxConnections is how many connections clients may have, over all of
	// Listen. The relay closes further ones at once, so that these clients try
	// another replica. 0 is what the limit of file descriptors (ulimit -n)
	// leaves when 32 or more are kept for the relay itself, and
	// upstream.max_connections for control planes, but at least a quarter of the
	// limit. A greater number than that has no effect, and the log says so.
	// Default: 0.
	MaxConnections int `yaml:"max_connections"`

	// MaxRequestBytes is the largest request accepted. Each name, version or other
	// element of it counts for 64 bytes at least, since it takes as much in memory
	// (VALID-8). An Envoy with 100,000 resources that comes back brings some 10 MiB.
	// Default: 16MiB.
	MaxRequestBytes Bytes `yaml:"max_request_bytes"`

	// MaxInflightBytes bounds the memory of requests that are not complete, or not
	// taken in yet, over all connections; one connection may take half of it, and
	// the others together the other half. Without room, reading waits, and nobody is
	// refused: connections have their turns, which go round between identities or
	// addresses. Connections with less than 20 KiB of such requests wait only when
	// many of them have used up their half, and then a frame of 16 KiB is still read
	// to its end. A request ends its stream that receives less than 64 KiB in 10 s
	// while others wait, or nothing for 30 s, or is not taken in at the end of its
	// turn: 10 s, and a second for each MiB (VALID-8). It is at least four times
	// MaxRequestBytes: with a greater MaxRequestBytes the default is that.
	// Default: 64MiB.
	MaxInflightBytes Bytes `yaml:"max_inflight_bytes"`

	// AcceptGzip accepts compressed requests, and MaxRequestBytes bounds what they
	// are inflated to. Without it a client that compresses is refused: 60 KiB can be
	// inflated to 60 MiB before anything of it is known (VALID-8).
	// Default: false.
	AcceptGzip bool `yaml:"accept_gzip"`

	// V2Transport offers the services of the v2 API, too, for clients that have not moved to
	// v3, such as an Envoy before 1.17 with transport_api_version: V2: the aggregated one,
	// those of one type, and Fetch. Resources go through as they are: whether a client gets
	// v2 or v3 ones is what it asks for and the control plane has. The v2 transport has no
	// words for TTLs and for errors of single resources (V2-3). In rules and in groups.types
	// an abbreviation such as CDS is the v3 type; write the URL of a v2 one.
	// Default: false.
	V2Transport bool `yaml:"v2_transport"`

	// Gzip compresses the responses on streams for clients that say
	// grpc-accept-encoding: gzip, such as a relay below or gRPC clients in another
	// region: it saves bytes on the way, and costs CPU at both ends. grpc-java, gRPC
	// C++ (Envoy's google_grpc) and a grpc-go that imports its gzip package say so;
	// Envoy's own client (envoy_grpc) does not. What clients share is compressed once
	// for all of them: what a wildcard is sent as a whole, and what is subscribed to by
	// name resource by resource, if one has 512 bytes or more. The compressed form of
	// a set is kept while the set is, that of other resources while the latest of them
	// and it take 64 MiB. Unary calls are not compressed.
	// Default: false.
	Gzip bool `yaml:"gzip"`

	// MaxNameBytes is the longest resource name accepted (VALID-8).
	// Default: 4KiB.
	MaxNameBytes Bytes `yaml:"max_name_bytes"`

	// MaxNamesPerStream is how many names one stream may subscribe to, over
	// all types. Beyond it a Delta stream goes on, and its newest names get
	// RESOURCE_EXHAUSTED in resource_errors; a SotW stream ends. While this is the
	// default, a relay may have 1000000: a client of Relays, on loopback or on a Unix
	// socket (VALID-8).
	// Default: 100000.
	MaxNamesPerStream int `yaml:"max_names_per_stream"`

	// MaxNames is how many names all streams may subscribe to together; 0 is no
	// limit. When it is reached, a client that has fewer than another one still gets
	// some: the newest stream of the client with the most ends. Clients are told
	// apart by the identity of their certificate, or else by their address, and
	// relays are exempt, as for MaxStreams, MaxConnections and groups.max (VALID-8).
	// Default: 10000000.
	MaxNames int `yaml:"max_names"`

	// MaxStreams is how many streams all clients may have together, with or without
	// a first request; 0 is no limit (VALID-8).
	// Default: 200000.
	MaxStreams int `yaml:"max_streams"`

	// MaxStreamsPerConnection is how many streams one connection may have open. A
	// connection that opens more in a burst, or afterwards more than a tenth of
	// it each second, is closed, and its client has to wait for 10 seconds unless
	// another connection of it has acknowledged something (VALID-8).
	// Default: 1000.
	MaxStreamsPerConnection int `yaml:"max_streams_per_connection"`

	// FirstMessageTimeout is how long a stream may stay open without its first
	// request; 0 is no limit. An Envoy may open its stream long before it has
	// something to ask (VALID-8).
	// Default: 0s.
	FirstMessageTimeout time.Duration `yaml:"first_message_timeout"`

	// RequestRate is how many requests a second one stream may send; 0 is no
	// limit. An ACK does not count, unless it changes the subscription. The
	// relay reads a stream that sends more more slowly; other streams are not
	// affected.
	// Default: 50.
	RequestRate int `yaml:"request_rate"`

	// RequestBurst is how many requests a stream may send at once before
	// RequestRate holds. A stream that follows another one on its connection
	// goes on with what that had left.
	// Default: 200.
	RequestBurst int `yaml:"request_burst"`

	// MaxResponseBytes bounds a response; 0 is no limit. gRPC's own xDS clients
	// in Go accept 4MiB. A Delta response is split, and its nonces count the
	// parts that are left (DOWN-DELTA-18). A resource that exceeds the bound by
	// itself is left out, named in resource_errors with RESOURCE_EXHAUSTED, and
	// sent when it shrinks; the others are sent (ERR-13). SotW responses cannot
	// be split: the relay counts, logs and sends one that is too large. Of
	// full-state types it sends too large resources as well, because clients
	// delete resources that a response lacks.
	// Default: 0B.
	MaxResponseBytes Bytes `yaml:"max_response_bytes"`

	// StallTimeout is how long a client may leave a response unread while more
	// waits to be sent; then its stream ends. If an ACK is missing,
	// timers.ack_timeout comes first. HTTP/2 keepalive does not notice such a
	// client. 0 is never.
	// Default: 30s.
	StallTimeout time.Duration `yaml:"stall_timeout"`

	// KeepaliveMin is how often clients may send HTTP/2 pings, at least 1s. Whoever pings more often,
	// again and again, loses the connection with GOAWAY, too_many_pings.
	// Default: 5s.
	KeepaliveMin time.Duration `yaml:"keepalive_min"`

	// MaxConnectionAge is how old connections become, 10 % more or less at
	// random, so that clients spread over replicas again; 0 is no limit, else
	// at least 1s. The relay first asks the client to open new streams on
	// another connection, then ends the old connection's streams with
	// UNAVAILABLE, each at a time of its own. It closes the connection at 1.3
	// times the age.
	// Default: 0s.
	MaxConnectionAge time.Duration `yaml:"max_connection_age"`

	// ResendOnReconnectTypes lists types, as type URLs or short names, that a
	// returning client is sent in full, whatever versions it shows, for
	// clients that report old versions (H-37).
	// Default: [].
	ResendOnReconnectTypes []string `yaml:"resend_on_reconnect_types"`

	// NeverSynthesizeRemoval lists types, as type URLs or short names, of which a
	// Delta client gets a removal only if it has a copy; relays always get
	// removals. When Envoy waits for a route configuration or an extension
	// configuration, a removal ends the wait and Envoy never becomes ready;
	// without an answer it is ready after 15 s (MISS-9).
	// Default: [RDS, ECDS].
	NeverSynthesizeRemoval []string `yaml:"never_synthesize_removal"`

	// ReadyTypes lists types, as type URLs or short names, that must be
	// complete before the relay is ready. The relay itself subscribes to all
	// of them, in the default group (ERR-14); so upstream.types, if it is set,
	// must list them, too.
	// Default: [].
	ReadyTypes []string `yaml:"ready_types"`

	// DrainDelay is how long, at shutdown, the relay goes on serving while it
	// reports that it is not ready, so that load balancers stop sending clients
	// (ERR-14). Then it closes all ports and sockets of Listen. Ctrl-C (SIGINT)
	// skips the delay while no client is connected.
	// Default: 5s.
	DrainDelay time.Duration `yaml:"drain_delay"`

	// Drain is the time over which the relay ends client streams, one by one
	// in random order, at shutdown after DrainDelay (ERR-14). New clients
	// cannot connect meanwhile.
	// Default: 10s.
	Drain time.Duration `yaml:"drain"`

	// REST serves clients that poll, such as Envoys with api_type: REST.
	REST REST `yaml:"rest"`
}

// REST serves clients that poll with POST /v3/discovery:clusters and the like
// (REST-1). TLS, Insecure, authz and the limits of downstream hold for them, too.
type REST struct {
	// Listen is the address to serve on, as in downstream.listen. It serves HTTP/1.1
	// and HTTP/2. Empty: nobody is served over REST.
	// Default: "".
	Listen string `yaml:"listen"`

	// Hold is how long an answer waits for a change if the client has everything
	// already; then it is 304. A client may ask for another time with the header
	// Prefer: wait=N, in seconds. Both are at most 60s, and clients must wait longer
	// than that: Envoy's request_timeout is 1s unless it is set (REST-8).
	// Default: 0s.
	Hold time.Duration `yaml:"hold"`

	// InterestTTL is how long the relay goes on subscribing to what a client has
	// polled for when it polls no more. It should be several times the client's
	// refresh_delay (REST-9).
	// Default: 5m.
	InterestTTL time.Duration `yaml:"interest_ttl"`

	// MaxPollers is how many polls of a client, a type and its names are
	// remembered at once. When there are more, a client that has fewer than another
	// one displaces that one's newest, as for MaxStreams.
	// Default: 10000.
	MaxPollers int `yaml:"max_pollers"`

	// ProtoNames calls fields in answers as the proto does, in snake_case; else
	// their names are in lowerCamelCase, as JSON has it. Envoy takes both.
	// Default: false.
	ProtoNames bool `yaml:"proto_names"`
}

// ServerTLS is TLS towards the clients. Changed files are used for new
// connections, as those of upstream.tls. While the certificate has expired no
// client can connect, and the relay is not ready (ERR-14).
type ServerTLS struct {
	// Cert is a PEM file with the server's certificate and its chain.
	// Default: "".
	Cert string `yaml:"cert"`

	// Key is the PEM file with the private key of Cert.
	// Default: "".
	Key string `yaml:"key"`

	// ClientCA is a PEM file with the roots that client certificates must
	// chain to; when it is set, a client without a certificate is refused.
	// The relay knows a client's identity by this certificate (NODE-6): its
	// SPIFFE ID, else its first URI, else its first DNS name as dns:NAME, else
	// subject:NAME. A certificate with more than one URI has no SPIFFE ID, and
	// a URI without a scheme or of the scheme spiffe, dns, subject or unix does
	// not count otherwise. Each of these authorities may issue any identity.
	// Streams end with their client's certificate, with UNAVAILABLE: at random
	// in its last 5 minutes, or in the last tenth of the time for which it is
	// valid, if that is shorter; those that are opened in that time, when it
	// expires.
	// Default: "".
	ClientCA string `yaml:"client_ca"`

	// SPIFFE takes all of it from an agent instead of files.
	SPIFFE ServerSPIFFE `yaml:"spiffe"`
}

// Enabled reports whether connections are secured.
func (t ServerTLS) Enabled() bool {
	return cmp.Or(t.Cert, t.Key, t.ClientCA) != "" || t.SPIFFE.Enabled()
}

// AsksClients reports whether clients have to show a certificate, which says who they are.
func (t ServerTLS) AsksClients() bool { return t.ClientCA != "" || t.SPIFFE.Enabled() }

// inflightRequests is how many of the largest requests fit into MaxInflightBytes: a connection may take
// half of it, and a request that comes in small parts takes twice its size.
const inflightRequests = 4

// EffectiveMaxInflight is MaxInflightBytes, or more if the largest request needs it.
func (d *Downstream) EffectiveMaxInflight() Bytes {
	return max(d.MaxInflightBytes, inflightRequests*d.MaxRequestBytes)
}

// relayNames is how many names a relay may have unless max_names_per_stream is set.
const relayNames = 1_000_000

// NamesOfRelays is how many names a stream may have whose client is a relay.
func (d *Downstream) NamesOfRelays() int {
	if d.MaxNamesPerStream == defaultNames {
		return relayNames
	}
	return d.MaxNamesPerStream
}

// defaultNames is the default of max_names_per_stream.
const defaultNames = 100_000
