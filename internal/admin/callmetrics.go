package admin

import (
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/xds-relay/xds-relay/internal/loadreport"
)

// callMetrics count calls of services that go through to the control plane. Their names are out of the configuration.
type callMetrics struct {
	ended, messages, bytes  *prometheus.CounterVec
	loadSent, loadSentBytes prometheus.Counter // sums of load reports
	loadDropped             *prometheus.CounterVec
}

func newCallMetrics(counter func(name, help string, labels ...string) *prometheus.CounterVec) callMetrics {
	c := callMetrics{
		ended:         counter("passthrough_calls_ended_total", "Calls of services that go through to the control plane that have ended or were refused, by gRPC's status. Those that the relay has ended count in client_disconnects_total, too, by reason.", "service", "code"),
		messages:      counter("passthrough_messages_total", "Messages of such calls that were handed on, up to the control plane or down to the client. Load reports that are added up (passthrough[].aggregate) count when they are in the sum.", "service", "direction"),
		bytes:         counter("passthrough_bytes_total", "Bytes of these messages, before compression and TLS.", "service", "direction"),
		loadSent:      counter("load_reports_sent_total", "Sums of load reports that were sent to the control plane, and the first message of each call.").WithLabelValues(),
		loadSentBytes: counter("load_reports_sent_bytes_total", "Bytes of these messages, before TLS.").WithLabelValues(),
		loadDropped: counter("load_dropped_total", "Clusters, localities, endpoints, metrics and drop categories in clients' load reports that are in no sum, by reason: there is no room for another name (full), the control plane has not asked for it (unasked), the client may not read the cluster (forbidden), the value is no finite number (not_finite), or the control plane was away until after the group's last client had left (abandoned).",
			"reason"),
	}
	for _, reason := range loadreport.Reasons() {
		c.loadDropped.WithLabelValues(string(reason))
	}
	return c
}

// fromTheStart makes the series of services.
func (c callMetrics) fromTheStart(services map[string]int) {
	for service := range services {
		for code := codes.OK; code <= codes.Unauthenticated; code++ {
			c.ended.WithLabelValues(service, code.String())
		}
		for _, direction := range []string{callUp, callDown} {
			c.messages.WithLabelValues(service, direction)
			c.bytes.WithLabelValues(service, direction)
		}
	}
}

// The directions of messages.
const (
	callUp   = "up"
	callDown = "down"
)

// ClientCallEnded counts calls.
func (m *Metrics) ClientCallEnded(service string, code codes.Code) {
	m.calls.ended.WithLabelValues(service, code.String()).Inc()
}

// ClientCallMessage counts messages.
func (m *Metrics) ClientCallMessage(service string, up bool, bytes int) {
	direction := callDown
	if up {
		direction = callUp
	}
	m.calls.messages.WithLabelValues(service, direction).Inc()
	m.calls.bytes.WithLabelValues(service, direction).Add(float64(bytes))
}

// LoadReported counts sums of load reports.
func (m *Metrics) LoadReported(bytes int) {
	m.calls.loadSent.Inc()
	m.calls.loadSentBytes.Add(float64(bytes))
}

// LoadDropped counts what is in no sum.
func (m *Metrics) LoadDropped(reason loadreport.Reason, n int) {
	m.calls.loadDropped.WithLabelValues(string(reason)).Add(float64(n))
}
