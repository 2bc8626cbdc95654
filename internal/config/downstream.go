package config

import "time"

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
	// all types, and how many resource versions it may come with (VALID-8).
	// Default: 1000000.
	MaxNamesPerStream int `yaml:"max_names_per_stream"`

	// MaxStreamsPerConnection is how many streams one connection may have open
	// (VALID-8).
	// Default: 1000.
	MaxStreamsPerConnection int `yaml:"max_streams_per_connection"`

	// FirstMessageTimeout is how long a stream may stay open without its first
	// request; 0 is no limit. An Envoy may open its stream long before it has
	// something to ask (VALID-8).
	// Default: 0s.
	FirstMessageTimeout time.Duration `yaml:"first_message_timeout"`

	// RequestRate is how many requests a second one stream may send; 0 is no
	// limit. The acknowledgement of a response does not count, unless it asks
	// for something. A stream that sends more is read more slowly; others do
	// not notice.
	// Default: 50.
	RequestRate int `yaml:"request_rate"`

	// RequestBurst is how many requests a stream may send at once before
	// RequestRate holds.
	// Default: 200.
	RequestBurst int `yaml:"request_burst"`

	// MaxResponseBytes bounds a response; 0 is no limit. gRPC's own xDS clients
	// in Go accept 4MiB. A Delta response is split, and its nonces count the
	// parts that are left (DOWN-DELTA-18). A resource that exceeds the bound by
	// itself is left out, named in resource_errors with RESOURCE_EXHAUSTED, and
	// sent when it shrinks; the others are sent (ERR-13). SotW responses cannot
	// be split: one that is too large is sent all the same, and counted and
	// logged. Those of the full-state types are sent whole, too large resources
	// included, because clients delete what is missing from them.
	// Default: 0B.
	MaxResponseBytes Bytes `yaml:"max_response_bytes"`

	// StallTimeout is how long a client may leave a response unread while more
	// waits to be sent; then its stream ends. What waits for an acknowledgement
	// waits for timers.ack_timeout first. HTTP/2 keepalive does not see such a
	// client. 0 is never.
	// Default: 30s.
	StallTimeout time.Duration `yaml:"stall_timeout"`

	// MaxConnectionAge is how old connections become, 10 % more or less at
	// random, so that clients spread over replicas again; 0 is no limit, else
	// at least 1s. A connection's streams are ended with UNAVAILABLE, each at a
	// time of its own; before that the client is told to open new ones
	// elsewhere. What is left is closed at 1.3 times the age.
	// Default: 0s.
	MaxConnectionAge time.Duration `yaml:"max_connection_age"`

	// ResendOnReconnectTypes lists types, as type URLs or short names, that
	// are sent in full to a returning client whatever versions it claims, for
	// clients that report old ones (H-37).
	// Default: [].
	ResendOnReconnectTypes []string `yaml:"resend_on_reconnect_types"`

	// NeverSynthesizeRemoval lists types, as type URLs or short names, of which a
	// Delta client that is not a relay is told that a name is gone only if it has
	// a copy. Envoy takes a removal for the end of its wait for a route
	// configuration or an extension configuration, and then never becomes ready;
	// without an answer it is after 15 s (MISS-9).
	// Default: [RDS, ECDS].
	NeverSynthesizeRemoval []string `yaml:"never_synthesize_removal"`

	// ReadyTypes lists types, as type URLs or short names, that must be
	// complete before the relay is ready. The relay itself subscribes to all
	// of them, in the default group (ERR-14).
	// Default: [].
	ReadyTypes []string `yaml:"ready_types"`

	// DrainDelay is how long, at shutdown, the relay goes on as before while it
	// says that it is not ready, so that load balancers look elsewhere before it
	// stops accepting (ERR-14). At its end all ports and sockets of Listen are
	// closed. It is skipped on Ctrl-C (SIGINT) while no client is connected.
	// Default: 5s.
	DrainDelay time.Duration `yaml:"drain_delay"`

	// Drain is the time over which client streams are ended, one by one in
	// random order, at shutdown after DrainDelay (ERR-14). Nobody can connect
	// any more.
	// Default: 10s.
	Drain time.Duration `yaml:"drain"`
}

// ServerTLS is TLS towards the clients. Files that change are used for new
// connections, as those of upstream.tls are. While the certificate has expired no
// client can connect, and the relay is not ready (ERR-14).
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
