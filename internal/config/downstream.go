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
