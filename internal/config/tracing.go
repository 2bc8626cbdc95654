package config

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/xds-relay/xds-relay/internal/certs"
)

// Tracing exports OpenTelemetry traces of updates, from the control plane to the ACKs of
// clients, and of subscriptions; see docs/tracing.md.
type Tracing struct {
	// OTLPEndpoint is the collector that takes OTLP over gRPC: http://host:port in
	// plaintext, or https://host:port. Empty means no traces.
	// Default: "".
	OTLPEndpoint string `yaml:"otlp_endpoint"`

	// Insecure accepts plaintext to a collector that is not on this host.
	// Default: false.
	Insecure bool `yaml:"insecure"`

	// TLS secures the connection to an https endpoint.
	TLS CollectorTLS `yaml:"tls"`

	// SampleRatio is the part of updates and subscriptions that is exported
	// in any case, from 0 to 1.
	// Default: 0.01.
	SampleRatio float64 `yaml:"sample_ratio"`

	// AlwaysSample lists what is exported besides, up to ten traces a second:
	// nack, updates that a client has rejected, and slow, updates that took
	// SlowAfter or more until some client's ACK, and subscriptions that waited as
	// long.
	// Default: [nack, slow].
	AlwaysSample []AlwaysSample `yaml:"always_sample"`

	// SlowAfter is the time from which an update or a subscription is slow.
	// Default: 1s.
	SlowAfter time.Duration `yaml:"slow_after"`

	// Window is how long the relay waits for the verdicts of clients before it
	// decides whether to export an update.
	// Default: 10s.
	Window time.Duration `yaml:"window"`
}

// CollectorTLS is TLS towards the collector. All fields empty means the system's roots and
// no client certificate.
type CollectorTLS struct {
	// CA is a PEM file with the roots that the collector's certificate must chain
	// to. Empty means the system's roots.
	// Default: "".
	CA string `yaml:"ca"`

	// Cert is a PEM file with the relay's client certificate and its chain. Empty
	// means none.
	// Default: "".
	Cert string `yaml:"cert"`

	// Key is the PEM file with the private key of Cert.
	// Default: "".
	Key string `yaml:"key"`

	// ServerName is the name the collector's certificate must carry. Empty means
	// the host of the endpoint.
	// Default: "".
	ServerName string `yaml:"server_name"`
}

// Files are those towards the collector at an endpoint. They are read once, at the start.
func (t CollectorTLS) Files(endpoint string) certs.Files {
	return certs.Files{Section: "tracing.tls", Hop: certs.Upstream, Address: endpoint, Cert: t.Cert, Key: t.Key, CA: t.CA}
}

// AlwaysSample is the type of the entries of tracing.always_sample.
type AlwaysSample string

// The values of AlwaysSample.
const (
	AlwaysSampleNack AlwaysSample = "nack"
	AlwaysSampleSlow AlwaysSample = "slow"
)

// Values lists the values that may be written.
func (AlwaysSample) Values() []string { return []string{"nack", "slow"} }

// Enabled reports whether anything is traced.
func (t *Tracing) Enabled() bool { return t.OTLPEndpoint != "" }

// Always reports whether something is exported in any case.
func (t *Tracing) Always(a AlwaysSample) bool { return slices.Contains(t.AlwaysSample, a) }

func (v *validator) tracing() {
	t := &v.c.Tracing
	v.collector()
	if !(t.SampleRatio >= 0 && t.SampleRatio <= 1) { // so written, NaN fails too
		v.fail("tracing.sample_ratio", "use 0.01 for one in a hundred", "must be from 0 to 1, is %v", t.SampleRatio)
	}
	for i, a := range t.AlwaysSample {
		if slices.Contains(t.AlwaysSample[:i], a) {
			v.fail(fmt.Sprintf("tracing.always_sample[%d]", i), "", "%q is listed twice", string(a))
		}
	}
	v.positive("tracing.slow_after", int64(t.SlowAfter))
	v.positive("tracing.window", int64(t.Window))
	v.together("tracing.tls", t.TLS.Cert, t.TLS.Key)
}

// collector checks where traces go, and how that is secured.
func (v *validator) collector() {
	t := &v.c.Tracing
	secured := t.TLS != CollectorTLS{}
	if !t.Enabled() {
		if secured {
			v.fail("tracing.tls", "set tracing.otlp_endpoint to https://host:port", "there is no collector to connect to")
		}
		return
	}
	u, err := url.Parse(t.OTLPEndpoint)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		v.fail("tracing.otlp_endpoint", "for example http://127.0.0.1:4317", "%q is not http://host:port or https://host:port", clip(t.OTLPEndpoint))
		return
	case u.User != nil || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		v.fail("tracing.otlp_endpoint", "OTLP over gRPC has no path; headers go into OTEL_EXPORTER_OTLP_HEADERS", "%q says more than http://host:port or https://host:port", clip(u.Redacted()))
		return
	}
	if port, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || port == 0 {
		v.fail("tracing.otlp_endpoint", "collectors take OTLP over gRPC at port 4317", "%q has no port from 1 to 65535", clip(t.OTLPEndpoint))
	}
	ip := net.ParseIP(u.Hostname())
	local := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	switch {
	case u.Scheme == "http" && secured:
		v.fail("tracing.tls", "write https:// in tracing.otlp_endpoint, or remove tracing.tls", "http:// is plaintext")
	case u.Scheme == "https" && t.Insecure:
		v.fail("tracing.insecure", "remove one of the two", "only permits plaintext, but tracing.otlp_endpoint is https://")
	case u.Scheme == "http" && !local && !t.Insecure:
		v.fail("tracing.otlp_endpoint", "write https://, or set tracing.insecure: true if the network is trusted", "%q is not on this host and would be spoken to in plaintext", clip(t.OTLPEndpoint))
	}
}
