package tracing

import (
	"container/list"
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/upstream"
)

// Tracer follows updates. Hand it to the relay as both Tracers. Its methods may be called
// from any goroutine.
type Tracer struct {
	options Options
	limits  Limits
	ratio   sdk.Sampler
	always  *rate.Limiter // updates that are exported beyond the ratio,
	waited  *rate.Limiter // and subscriptions

	// The spans' way out.
	exporter *exporter
	provider *sdk.TracerProvider
	spans    trace.Tracer
	queue    chan record
	stop     chan struct{}
	work     sync.WaitGroup

	mu     sync.Mutex // under it, no other lock is taken
	open   *list.List // of *update, oldest first
	closed bool
}

var (
	_ upstream.Tracer   = (*Tracer)(nil)
	_ downstream.Tracer = (*Tracer)(nil)
)

// record is an update or subscription that is over and is to be exported.
type record interface{ export(t *Tracer) }

// New returns a Tracer that runs until Close.
func New(o Options) *Tracer {
	l := o.Limits.withDefaults()
	t := &Tracer{
		options: o, limits: l,
		ratio:  sdk.TraceIDRatioBased(o.Ratio),
		always: rate.NewLimiter(rate.Limit(l.Always), l.Always), waited: rate.NewLimiter(rate.Limit(l.Always), l.Always),
		queue: make(chan record, l.Queue), stop: make(chan struct{}),
		open: list.New(),
	}
	t.exporter = newExporter(o.Exporter, l, o.Log)
	t.provider = sdk.NewTracerProvider(
		sdk.WithSampler(sdk.AlwaysSample()), // what is not to be exported never becomes a span
		sdk.WithIDGenerator(generator{}),
		sdk.WithResource(describe(o)),
		sdk.WithBatcher(t.exporter, sdk.WithMaxQueueSize(l.Spans), sdk.WithMaxExportBatchSize(min(512, l.Spans)),
			sdk.WithBatchTimeout(l.Batch), sdk.WithExportTimeout(l.Export)),
	)
	t.spans = t.provider.Tracer("github.com/xds-relay/xds-relay", trace.WithInstrumentationVersion(o.Version))
	t.work.Go(t.run)
	return t
}

// describe says what the spans are of. OTEL_RESOURCE_ATTRIBUTES adds to it.
func describe(o Options) *resource.Resource {
	own := resource.NewSchemaless(
		attribute.String("service.name", "xds-relay"),
		attribute.String("service.version", o.Version),
		attribute.String("service.instance.id", o.Instance),
	)
	if all, err := resource.Merge(resource.Environment(), own); err == nil {
		return all
	}
	return own
}

// run ends updates whose time is up, and makes spans of the records.
func (t *Tracer) run() {
	tick := time.NewTicker(max(t.limits.Window/10, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case r := <-t.queue:
			r.export(t)
		case now := <-tick.C:
			t.expire(now)
		case <-t.stop:
			t.drain()
			return
		}
	}
}

// drain makes spans of what is left.
func (t *Tracer) drain() {
	for {
		select {
		case r := <-t.queue:
			r.export(t)
		default:
			return
		}
	}
}

// expire ends the updates that have been open for the window.
func (t *Tracer) expire(now time.Time) {
	for {
		u := t.oldest(func(u *update) bool { return now.Sub(u.in.At) >= t.limits.Window })
		if u == nil {
			return
		}
		u.end(now)
	}
}

// oldest takes the oldest update off the list, if it is as it should be.
func (t *Tracer) oldest(due func(*update) bool) *update {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := t.open.Front()
	if first == nil || !due(first.Value.(*update)) {
		return nil
	}
	return t.open.Remove(first).(*update)
}

// enter puts an update on the list; the oldest makes room for it. false: the Tracer is closed.
func (t *Tracer) enter(u *update) bool {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return false
	}
	u.place = t.open.PushBack(u)
	crowded := t.open.Len() > t.limits.Updates
	t.mu.Unlock()
	if crowded {
		if first := t.oldest(func(*update) bool { return true }); first != nil {
			first.end(time.Now())
		}
	}
	return true
}

// leave takes an update off the list, if it is still there.
func (t *Tracer) leave(u *update) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open.Remove(u.place) // which knows what it has removed
}

// put queues a record for export; false: the queue is full.
func (t *Tracer) put(r record) bool {
	select {
	case t.queue <- r:
		return true
	default:
		t.exporter.complaints.lost(1, "more traces at once than tracing keeps")
		return false
	}
}

// chosen reports whether the ratio exports a trace.
func (t *Tracer) chosen(id trace.TraceID) bool {
	return t.ratio.ShouldSample(sdk.SamplingParameters{ParentContext: context.Background(), TraceID: id}).Decision == sdk.RecordAndSample
}

// Close exports what there is, for Limits.Flush at most. The relay is to be closed before
// it: what comes later is not traced. Nothing is to be closed of nil.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	t.mu.Lock()
	closed := t.closed
	t.closed = true
	t.mu.Unlock()
	if closed {
		return
	}
	for u := t.oldest(func(*update) bool { return true }); u != nil; u = t.oldest(func(*update) bool { return true }) {
		u.end(time.Now())
	}
	close(t.stop)
	t.work.Wait()
	t.exporter.close(t.provider)
}

// Received begins to follow a response of the control plane.
func (t *Tracer) Received(r upstream.Received) cache.Trace {
	u := &update{tracer: t, rootID: newRootID(), in: r}
	u.chosen = t.chosen(u.trace)
	if !t.enter(u) {
		return nil
	}
	return u
}

// Applied notes which clients an update concerns.
func (t *Tracer) Applied(trace cache.Trace, a upstream.Application) {
	trace.(*update).applied(a)
}

// Taken notes that no more clients will be concerned by a response.
func (t *Tracer) Taken(trace cache.Trace, nack string) { trace.(*update).taken(nack) }

// Pushed notes a response to a client.
func (t *Tracer) Pushed(p *downstream.Push) {
	for _, u := range p.Source.List() {
		u.(*update).pushed(p)
	}
}

// Judged notes what became of it.
func (t *Tracer) Judged(p *downstream.Push, j downstream.Judgement) {
	for _, u := range p.Source.List() {
		u.(*update).judged(p, j)
	}
}

// Untold notes that a client need not be told, or is too far behind to be followed.
func (t *Tracer) Untold(s *cache.Source, behind bool) {
	for _, u := range s.List() {
		u.(*update).untold(behind)
	}
}

// Exemplar is the trace of the oldest update of a source, if it will be exported.
func (t *Tracer) Exemplar(s *cache.Source, after time.Duration) string {
	if !s.Traced() {
		return ""
	}
	u := s.Traces[0].(*update)
	if u.chosen || t.options.Slow && after >= t.options.SlowAfter && u.keep() {
		return u.trace.String()
	}
	return ""
}

// Answered exports a subscription, if it is chosen or slow.
func (t *Tracer) Answered(s downstream.Subscribe) {
	r := &subscribe{rootID: newRootID(), Subscribe: s}
	slow := t.options.Slow && !s.Answered.IsZero() && s.Answered.Sub(s.Asked) >= t.options.SlowAfter
	if !t.chosen(r.trace) && !(slow && t.waited.Allow()) {
		return
	}
	t.mu.Lock()
	closed := t.closed
	t.mu.Unlock()
	if !closed {
		t.put(r)
	}
}
