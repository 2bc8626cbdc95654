package admin

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/xds-relay/xds-relay/cache"
)

// MetricsOption changes what NewMetrics returns.
type MetricsOption func(*Metrics)

// WithoutNativeHistograms leaves out the native form of histograms, and so makes a scrape in protobuf smaller.
func WithoutNativeHistograms() MetricsOption { return func(m *Metrics) { m.classicOnly = true } }

// The bounds of the classic buckets, in seconds.
var (
	latencies    = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	convergences = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}
)

// histogram is one of seconds by type, in two forms: with classic buckets, which every scrape has, and native,
// which Prometheus gets if it asks for protobuf. The native one has at most 160 buckets of each type: if it needs
// more it starts over, but no more often than once an hour, and merges buckets until then.
func (m *Metrics) histogram(name, help string, buckets []float64) *prometheus.HistogramVec {
	o := prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: buckets}
	if !m.classicOnly {
		o.NativeHistogramBucketFactor, o.NativeHistogramMaxBucketNumber, o.NativeHistogramMinResetDuration = 1.1, 160, time.Hour
	}
	h := prometheus.NewHistogramVec(o, []string{"type"})
	m.registry.MustRegister(h)
	return h
}

// convergenceMetrics count what the relay measures of changes until the last client has them.
type convergenceMetrics struct {
	seconds *prometheus.HistogramVec
	skipped prometheus.Counter
}

func (m *Metrics) newConvergenceMetrics() convergenceMetrics {
	skipped := prometheus.NewCounter(prometheus.CounterOpts{
		Name: prefix + "convergence_skipped_total",
		Help: "Changes that are not in convergence_seconds, because 16384 others were waited for.",
	})
	m.registry.MustRegister(skipped)
	return convergenceMetrics{
		seconds: m.histogram("convergence_seconds", "Time from receiving a response of the control plane until the last client that it concerned was done with it: the client has acknowledged or rejected it or something newer, or has gone. "+
			"Of each group and type one response a second is measured. Clients that subscribed later do not count, nor do those that have owed an ACK for more than 5 minutes (see laggards). What takes longer than 5 minutes counts as 5 minutes. "+
			"A relay as a client acknowledges for itself, not for its own clients.", convergences),
		skipped: skipped,
	}
}

// Converged measures how long a change took to the last client.
func (m *Metrics) Converged(t cache.TypeURL, after time.Duration) {
	m.convergence.seconds.WithLabelValues(t.Short()).Observe(after.Seconds())
	m.observed.types.of(t).convergence.observe(after, time.Now())
	m.observed.move()
}

// ConvergenceSkipped counts changes that were not measured.
func (m *Metrics) ConvergenceSkipped(n int) { m.convergence.skipped.Add(float64(n)) }
