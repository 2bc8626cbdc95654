package tracing

import (
	"context"
	"encoding/binary"
	"math/rand/v2"

	"go.opentelemetry.io/otel/trace"
)

// An update has its ids from the beginning: exemplars and links name them before it is
// decided whether it is exported. Spans are made at the end, with these ids.

func newTraceID() (id trace.TraceID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	}
	return id
}

func newSpanID() (id trace.SpanID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}

// rootID is the ids of a root span.
type rootID struct {
	trace trace.TraceID
	span  trace.SpanID
}

func newRootID() rootID { return rootID{newTraceID(), newSpanID()} }

// context is what a link to the root span says.
func (r rootID) context() trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: r.trace, SpanID: r.span, TraceFlags: trace.FlagsSampled})
}

type rootKey struct{}

// generator takes the ids of a root span from its context. It implements the SDK's
// IDGenerator.
type generator struct{}

func (generator) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if r, ok := ctx.Value(rootKey{}).(rootID); ok {
		return r.trace, r.span
	}
	return newTraceID(), newSpanID()
}

func (generator) NewSpanID(context.Context, trace.TraceID) trace.SpanID { return newSpanID() }
