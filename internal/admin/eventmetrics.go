package admin

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/xds-relay/xds-relay/internal/events"
)

// eventMetrics count events, and what becomes of them at the webhook.
type eventMetrics struct {
	events  *prometheus.CounterVec
	posts   *prometheus.CounterVec
	dropped prometheus.Counter
}

func newEventMetrics(r *prometheus.Registry) eventMetrics {
	m := eventMetrics{
		events:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "events_total", Help: "Events for operators, by kind, repeats included; /events has the latest."}, []string{"kind"}),
		posts:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "webhook_posts_total", Help: "Attempts to post events to admin.webhook, by result: ok or failed. The log says why one fails."}, []string{"result"}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + "webhook_dropped_total", Help: "Events that were not delivered to admin.webhook, because it is too slow or away for too long, or refuses them."}),
	}
	r.MustRegister(m.events, m.posts, m.dropped)
	for _, k := range events.Kinds() {
		m.events.WithLabelValues(string(k))
	}
	for _, result := range []string{reloadOK, reloadFailed} {
		m.posts.WithLabelValues(result)
	}
	return m
}

// EventPublished counts events.
func (m *Metrics) EventPublished(k events.Kind) {
	m.events.events.WithLabelValues(string(k)).Inc()
	m.observed.move()
}

// WebhookPosted counts attempts to post events.
func (m *Metrics) WebhookPosted(ok bool) {
	result := reloadFailed
	if ok {
		result = reloadOK
	}
	m.events.posts.WithLabelValues(result).Inc()
}

// WebhookDropped counts events that were not delivered.
func (m *Metrics) WebhookDropped(n int) { m.events.dropped.Add(float64(n)) }
