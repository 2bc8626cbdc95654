package relay

import (
	"crypto/tls"
	"log/slog"

	"github.com/xds-relay/xds-relay/internal/certs"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/tracing"
)

// NewTracer is the Tracer that a configuration asks for, or nil: nothing is traced. Close
// it after the relay.
func NewTracer(c *config.Config, version string, log *slog.Logger) (*tracing.Tracer, error) {
	t := &c.Tracing
	if !t.Enabled() {
		return nil, nil
	}
	files, err := certs.Load(t.TLS.Files(t.OTLPEndpoint))
	if err != nil {
		return nil, err
	}
	security := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.TLS.ServerName, RootCAs: files.Pool}
	if files.Pair != nil {
		security.Certificates = []tls.Certificate{*files.Pair}
	}
	exporter, err := tracing.OTLP(t.OTLPEndpoint, security)
	if err != nil {
		return nil, err
	}
	o := TracingOptions(c, version, log)
	o.Exporter = exporter
	return tracing.New(o), nil
}

// TracingOptions are what a configuration says about tracing. Where spans go is not among them.
func TracingOptions(c *config.Config, version string, log *slog.Logger) tracing.Options {
	t := &c.Tracing
	return tracing.Options{
		Version: version, Instance: c.InstanceName(), Types: typeTable(c),
		Ratio: t.SampleRatio, Nacks: t.Always(config.AlwaysSampleNack), Slow: t.Always(config.AlwaysSampleSlow),
		SlowAfter: t.SlowAfter, Log: log.With("component", "tracing", "address", t.OTLPEndpoint),
		Limits: tracing.Limits{Window: t.Window},
	}
}

// Trace has a relay tell a Tracer, if there is one.
func (o *Options) Trace(t *tracing.Tracer) {
	if t != nil { // an interface that holds a nil pointer is not nil
		o.UpstreamTracer, o.DownstreamTracer = t, t
	}
}
