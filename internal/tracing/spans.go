package tracing

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/internal/logging"
)

// What is over becomes spans here, with the times at which things happened.

// start begins a span at a time that has passed.
func (t *Tracer) start(ctx context.Context, name string, at time.Time, o ...trace.SpanStartOption) (context.Context, trace.Span) {
	return t.spans.Start(ctx, name, append(o, trace.WithTimestamp(at))...)
}

// root begins a trace.
func (t *Tracer) root(id rootID, name string, at time.Time, o ...trace.SpanStartOption) (context.Context, trace.Span) {
	return t.start(context.WithValue(context.Background(), rootKey{}, id), name, at, append(o, trace.WithNewRoot())...)
}

// export makes the trace of an update. Nothing changes in it any more.
func (u *update) export(t *Tracer) {
	defer u.clear()
	in := &u.in
	shown := u.shown()
	ctx, root := t.root(u.rootID, "xds.update", in.At, trace.WithAttributes(
		attribute.String("xds.type", typeName(in.Type)),
		attribute.Int("xds.resources.added", in.Set),
		attribute.Int("xds.resources.removed", in.Removed),
		attribute.Int("xds.bytes", in.Bytes),
		attribute.String("xds.upstream.entry", in.Stream.Entry),
		attribute.String("xds.upstream.stream", string(in.Stream.Role)),
		attribute.String("xds.upstream.mode", in.Stream.Mode()),
		attribute.String("xds.upstream.version", t.version(in.Type, in.Version)),
		attribute.String("xds.upstream.nonce", t.clip(in.Nonce)),
	))
	if in.Group != "" {
		root.SetAttributes(attribute.String("xds.group", in.Group))
	}
	if u.nack != "" {
		root.SetStatus(codes.Error, t.message(in.Type, u.nack))
	}
	over := in.At
	if !u.ends.IsZero() {
		_, apply := t.start(ctx, "cache.apply", u.begins)
		apply.End(trace.WithTimestamp(u.ends))
		over = latest(over, t.fanout(ctx, u, shown))
	}
	root.End(trace.WithTimestamp(over))
}

// fanout makes the span for all responses to clients, and those of the clients that are
// shown. It returns the end of the span.
func (t *Tracer) fanout(ctx context.Context, u *update, shown []outcome) time.Time {
	begins, c := u.ends, u.counts
	over := latest(u.ends, u.last)
	for _, p := range shown {
		if p.Made.Before(begins) {
			begins = p.Made // clients are told before Apply has returned
		}
		over = latest(over, latest(p.At, p.Sent))
	}
	ctx, fan := t.start(ctx, "fanout", begins, trace.WithAttributes(
		attribute.Int("xds.clients.concerned", c.concerned),
		attribute.Int("xds.clients.acked", c.acked),
		attribute.Int("xds.clients.nacked", c.nacked),
		attribute.Int("xds.clients.replaced", c.replaced),
		attribute.Int("xds.clients.gone", c.gone),
		attribute.Int("xds.clients.untold", c.untold),
		attribute.Int("xds.clients.behind", c.behind),
		attribute.Int("xds.clients.waiting", max(0, c.concerned-c.settled())),
		attribute.Int("xds.clients.shown", len(shown)),
	))
	for _, p := range shown {
		_, span := t.start(ctx, "xds.push", p.Made, t.pushOptions(p, u.in.At)...)
		t.finish(span, p)
	}
	fan.End(trace.WithTimestamp(over))
	return over
}

// shown are the responses that have a span: those that were rejected, and the slowest of the
// others, of which those without a verdict are the slowest.
func (u *update) shown() []outcome {
	late := slices.SortedFunc(maps.Keys(u.waiting), func(a, b *downstream.Push) int {
		return cmp.Or(a.Made.Compare(b.Made), cmp.Compare(a.Client.Stream, b.Client.Stream))
	})
	late = late[:min(len(late), u.tracer.limits.Slowest)]
	slices.SortFunc(u.slowest, func(a, b outcome) int { return b.At.Compare(a.At) })
	rest := u.slowest[:min(len(u.slowest), u.tracer.limits.Slowest-len(late))]

	all := make([]outcome, 0, len(u.nacks)+len(late)+len(rest))
	all = append(all, u.nacks...)
	for _, p := range late {
		all = append(all, outcome{Push: p, Judgement: downstream.Judgement{At: u.ended}, waits: true})
	}
	return append(all, rest...)
}

// pushOptions are what a response says of itself, and the updates that it merges.
func (t *Tracer) pushOptions(p outcome, received time.Time) []trace.SpanStartOption {
	merged := len(p.Source.Traces) + p.Source.Left
	o := []trace.SpanStartOption{trace.WithAttributes(
		attribute.String("xds.client.node", t.clip(p.Client.Node)),
		attribute.Int64("xds.client.stream", int64(p.Client.Stream)),
		attribute.String("xds.client.protocol", p.Client.Protocol),
		attribute.String("network.peer.address", p.Client.Peer),
		attribute.String("xds.type", typeName(p.Type)),
		attribute.String("xds.nonce", p.Nonce),
		attribute.String("xds.version", t.version(p.Type, p.Version)),
		attribute.Int("xds.resources.added", len(p.Resources)),
		attribute.Int("xds.resources.removed", len(p.Removed)),
		attribute.Int("xds.bytes", p.Bytes),
		attribute.Int("xds.updates", merged),
		attribute.String("xds.outcome", p.name()),
		attribute.Float64("xds.lag_ms", float64(p.At.Sub(received).Microseconds())/1000),
	)}
	if merged > 1 {
		links := make([]trace.Link, 0, len(p.Source.Traces))
		for _, u := range p.Source.Traces {
			links = append(links, trace.Link{SpanContext: u.(*update).rootID.context()})
		}
		o = append(o, trace.WithLinks(links...))
	}
	return o
}

// name is what became of a response.
func (p outcome) name() string {
	if p.waits {
		return "waiting"
	}
	return string(p.End)
}

// finish notes what became of a response, and ends its span.
func (t *Tracer) finish(span trace.Span, p outcome) {
	if !p.Sent.IsZero() {
		span.AddEvent("sent", trace.WithTimestamp(p.Sent))
	}
	switch {
	case p.waits:
	case p.End == downstream.PushNacked:
		span.AddEvent("nack", trace.WithTimestamp(p.At), trace.WithAttributes(t.rejected(p)...))
		span.SetStatus(codes.Error, t.message(p.Type, p.Message))
	default:
		span.AddEvent(string(p.End), trace.WithTimestamp(p.At))
	}
	span.End(trace.WithTimestamp(p.At))
}

// rejected says what was in a response that a client has rejected: the first few names, and
// of a secret type none.
func (t *Tracer) rejected(p outcome) []attribute.KeyValue {
	all := []attribute.KeyValue{attribute.String("message", t.message(p.Type, p.Message))}
	if t.options.Types.Of(p.Type).Secret {
		return all
	}
	var names []string
	for _, r := range p.Resources[:min(len(p.Resources), t.limits.Names)] {
		names = append(names, t.clip(r.Name))
	}
	return append(all, attribute.StringSlice("xds.resources", names))
}

// message is a client's message about a response that it rejects. For a secret type it
// may contain more than a collector should see, so it is left out; the log has it.
func (t *Tracer) message(typ cache.TypeURL, message string) string {
	if t.options.Types.Of(typ).Secret {
		return "(about Secrets: see the relay's log)"
	}
	return t.clip(message)
}

// version is a version of a type's resources, which is no secret's.
func (t *Tracer) version(typ cache.TypeURL, version string) string {
	return t.clip(logging.Version(t.options.Types, typ, version))
}

// clip bounds a text that a peer has chosen.
func (t *Tracer) clip(s string) string {
	if len(s) <= t.limits.Message {
		return strings.ToValidUTF8(s, "")
	}
	return strings.ToValidUTF8(s[:t.limits.Message], "") + "..."
}

// typeName is what people call a type.
func typeName(t cache.TypeURL) string {
	return t.Name()
}

// lateNack is a rejection that came when its update was over.
type lateNack struct {
	rootID
	outcome
}

func (n *lateNack) export(t *Tracer) {
	_, span := t.root(n.rootID, "xds.push", n.Made, append(t.pushOptions(n.outcome, n.Source.At), trace.WithLinks(n.links()...))...)
	t.finish(span, n.outcome)
}

// links are to all updates that the response tells of, be it only one.
func (n *lateNack) links() (links []trace.Link) {
	if len(n.Source.Traces) > 1 {
		return nil // pushOptions has them
	}
	for _, u := range n.Source.Traces {
		links = append(links, trace.Link{SpanContext: u.(*update).rootID.context()})
	}
	return links
}

// subscribe is a client's first request of a type, up to its answer.
type subscribe struct {
	rootID
	downstream.Subscribe
}

func (s *subscribe) export(t *Tracer) {
	_, span := t.root(s.rootID, "xds.subscribe", s.Asked, trace.WithAttributes(
		attribute.String("xds.client.node", t.clip(s.Client.Node)),
		attribute.Int64("xds.client.stream", int64(s.Client.Stream)),
		attribute.String("xds.client.protocol", s.Client.Protocol),
		attribute.String("network.peer.address", s.Client.Peer),
		attribute.String("xds.type", typeName(s.Type)),
		attribute.Bool("xds.answered", !s.Answered.IsZero()),
		attribute.Int("xds.resources.added", s.Resources),
		attribute.Int("xds.bytes", s.Bytes),
	))
	span.End(trace.WithTimestamp(latest(s.Answered, s.Ended)))
}
