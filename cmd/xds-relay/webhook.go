package main

import (
	"context"
	"log/slog"
	"sync"

	"github.com/xds-relay/xds-relay/internal/admin"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/events"
	"github.com/xds-relay/xds-relay/internal/relay"
)

// operators are what operators are told, if there is a way to tell them.
func operators(c *config.Config, m *admin.Metrics) (ring *events.Ring, watch *events.Watch) {
	if c.Admin.Listen != "" {
		watch = events.NewWatch()
	}
	if c.Admin.Listen != "" || c.Admin.Webhook.Enabled() {
		ring = events.NewRing(m.EventPublished)
	}
	return ring, watch
}

// startWebhook posts events to admin.webhook, if that is set, until stop is called.
func startWebhook(c *config.Config, ring *events.Ring, m *admin.Metrics, log *slog.Logger) (stop func()) {
	w := &c.Admin.Webhook
	if !w.Enabled() {
		return func() {}
	}
	hook := events.NewWebhook(ring, events.WebhookOptions{
		URL: w.URL, Headers: relay.ReadHeaders(w.Headers), Kinds: w.Kinds(), Relay: c.InstanceName(),
		Log: log.With("component", "webhook"), Observer: m,
	})
	ctx, cancel := context.WithCancel(context.Background())
	var runs sync.WaitGroup
	runs.Go(func() { hook.Run(ctx) })
	return func() {
		cancel()
		runs.Wait()
	}
}
