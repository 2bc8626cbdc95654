package tracing

import (
	"log/slog"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/xds-relay/xds-relay/cache"
)

// Options are what a Tracer needs.
type Options struct {
	// Exporter is where spans go; the Tracer shuts it down. See OTLP.
	Exporter sdk.SpanExporter
	// Version and Instance are the relay's.
	Version, Instance string
	// Ratio of the updates and subscriptions that are exported in any case, from 0 to 1.
	Ratio float64
	// Nacks and Slow export all updates that a client has rejected, and all that have taken
	// SlowAfter to reach a client and its ACK, or more.
	Nacks, Slow bool
	SlowAfter   time.Duration
	// Types says which types are secret: no version, name or message of these is exported.
	Types cache.Types
	// Log has a line when spans cannot be exported.
	Log *slog.Logger
	// Limits bound what is kept; zero fields are as in DefaultLimits.
	Limits Limits
}

// Limits bound what a Tracer keeps and sends.
type Limits struct {
	// Window is how long an update is kept for clients that have not answered.
	Window time.Duration
	// Updates are kept at once; beyond it the oldest ends early.
	Updates int
	// Slowest clients of an update are shown, and so many Nacks.
	Slowest, Nacks int
	// Names of the resources in a rejected response are shown.
	Names int
	// Message is how much is shown of a client's message, in bytes.
	Message int
	// Always is how many traces of updates a second are exported beyond the ratio, as many
	// at once, and the same of subscriptions: a fleet that rejects everything must not drown the collector.
	Always int
	// Queue is how many traces wait to be made into spans, and Spans how many spans wait
	// to be sent. Further ones are dropped.
	Queue, Spans int
	// Batch is for how long spans are gathered before they are sent.
	Batch time.Duration
	// Export bounds the sending of one batch, and Flush that of all there is at the end.
	Export, Flush time.Duration
	// Complain is how often it is said at most that spans are lost.
	Complain time.Duration
}

// DefaultLimits are what Limits are if nothing else is said.
func DefaultLimits() Limits {
	return Limits{
		Window: 10 * time.Second, Updates: 1000, Slowest: 10, Nacks: 100, Names: 10, Message: 1 << 10,
		Always: 10, Queue: 100, Spans: 4096, Batch: time.Second,
		Export: 5 * time.Second, Flush: 2 * time.Second, Complain: time.Minute,
	}
}

func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	for _, f := range []struct{ value, def *int }{
		{&l.Updates, &d.Updates}, {&l.Slowest, &d.Slowest}, {&l.Nacks, &d.Nacks}, {&l.Names, &d.Names},
		{&l.Message, &d.Message}, {&l.Always, &d.Always}, {&l.Queue, &d.Queue}, {&l.Spans, &d.Spans},
	} {
		if *f.value <= 0 {
			*f.value = *f.def
		}
	}
	for _, f := range []struct{ value, def *time.Duration }{
		{&l.Window, &d.Window}, {&l.Batch, &d.Batch}, {&l.Export, &d.Export}, {&l.Flush, &d.Flush}, {&l.Complain, &d.Complain},
	} {
		if *f.value <= 0 {
			*f.value = *f.def
		}
	}
	return l
}
