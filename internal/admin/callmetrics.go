package admin

import (
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
)

// callMetrics count calls of services that go through to the control plane. Their names are out of the configuration.
type callMetrics struct{ ended, messages, bytes *prometheus.CounterVec }

func newCallMetrics(counter func(name, help string, labels ...string) *prometheus.CounterVec) callMetrics {
	return callMetrics{
		ended:    counter("passthrough_calls_ended_total", "Calls of services that go through to the control plane that have ended or were refused, by gRPC's status. Those that the relay has ended count in client_disconnects_total, too, by reason.", "service", "code"),
		messages: counter("passthrough_messages_total", "Messages of such calls that were handed on, up to the control plane or down to the client.", "service", "direction"),
		bytes:    counter("passthrough_bytes_total", "Bytes of these messages, before compression and TLS.", "service", "direction"),
	}
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
