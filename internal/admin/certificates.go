package admin

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/xds-relay/xds-relay/internal/certs"
)

// certificateMetrics count handshakes and changes of certificate files.
type certificateMetrics struct {
	reloads    *prometheus.CounterVec
	handshakes *prometheus.CounterVec
}

// What becomes of certificate files that have changed.
const (
	reloadOK     = "ok"
	reloadFailed = "failed"
)

func newCertificateMetrics(r *prometheus.Registry) certificateMetrics {
	m := certificateMetrics{
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "certificate_reloads_total",
			Help: "Changes of certificate files, by result: ok, or failed, when the files cannot be used and the last good ones stay in use.",
		}, []string{"result"}),
		handshakes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "handshake_failures_total",
			Help: "TLS handshakes that failed, with a control plane (upstream) or a client (downstream), by reason; the certificate may be the relay's or the peer's. A connection without any data does not count.",
		}, []string{"hop", "reason"}),
	}
	r.MustRegister(m.reloads, m.handshakes)
	for _, result := range []string{reloadOK, reloadFailed} {
		m.reloads.WithLabelValues(result)
	}
	for _, hop := range []certs.Hop{certs.Upstream, certs.Downstream} {
		for _, reason := range certs.Reasons() {
			m.handshakes.WithLabelValues(string(hop), string(reason))
		}
	}
	return m
}

// CertificatesReloaded counts changes of certificate files.
func (m *Metrics) CertificatesReloaded(ok bool) {
	result := reloadFailed
	if ok {
		result = reloadOK
	}
	m.certificates.reloads.WithLabelValues(result).Inc()
}

// HandshakeFailed counts handshakes.
func (m *Metrics) HandshakeFailed(hop certs.Hop, reason certs.Reason) {
	m.certificates.handshakes.WithLabelValues(string(hop), string(reason)).Inc()
}

// certificateCollector asks the relay for its certificates at each scrape.
type certificateCollector struct {
	relay  Relay
	expiry *prometheus.Desc
	fresh  *prometheus.Desc
}

func newCertificateCollector(r Relay) *certificateCollector {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+name, help, []string{"hop", "address", "file"}, nil)
	}
	return &certificateCollector{
		relay:  r,
		expiry: desc("certificate_expiry_timestamp_seconds", "When a certificate in use expires, in seconds since 1970: that of downstream.tls (hop downstream, no address), or of an entry of the list of control planes; file cert is the relay's own certificate, ca the authority that the peer's must chain to; of several authorities the one that expires first."),
		fresh:  desc("certificate_last_reload_successful", "0 while the file on disk has changed and cannot be used, so that the last good one stays in use; else 1."),
	}
}

// Describe implements prometheus.Collector.
func (c *certificateCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.expiry
	ch <- c.fresh
}

// Collect implements prometheus.Collector.
func (c *certificateCollector) Collect(ch chan<- prometheus.Metric) {
	for _, s := range c.relay.Certificates() {
		fresh := 1.0
		if s.Stale {
			fresh = 0
		}
		ch <- prometheus.MustNewConstMetric(c.expiry, prometheus.GaugeValue, float64(s.NotAfter.Unix()), string(s.Hop), s.Address, s.Role)
		ch <- prometheus.MustNewConstMetric(c.fresh, prometheus.GaugeValue, fresh, string(s.Hop), s.Address, s.Role)
	}
}
