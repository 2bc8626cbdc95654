package main

import (
	"log/slog"

	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/relay"
	"github.com/xds-relay/xds-relay/internal/tracing"
)

// newTracer follows updates, or is nil without a collector.
func newTracer(c *config.Config, version string, log *slog.Logger) (*tracing.Tracer, error) {
	t, err := relay.NewTracer(c, version, log)
	if t != nil {
		tracing.BridgeErrors(log.With("component", "tracing"))
		log.Info("tracing", "address", c.Tracing.OTLPEndpoint, "sample_ratio", c.Tracing.SampleRatio, "always_sample", c.Tracing.AlwaysSample)
	}
	return t, err
}
