package tracing_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/tracing"
)

func attributes(s tracetest.SpanStub) map[string]any {
	all := make(map[string]any)
	for _, a := range s.Attributes {
		all[string(a.Key)] = a.Value.AsInterface()
	}
	return all
}

func events(s tracetest.SpanStub) (names []string) {
	for _, e := range s.Events {
		names = append(names, e.Name)
	}
	return names
}

// has asks for attributes of a span.
func has(t *testing.T, s tracetest.SpanStub, want map[string]any) {
	t.Helper()
	got := attributes(s)
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s: %s is %v (%[3]T), want %v (%[4]T)", s.Name, k, got[k], v)
		}
	}
}

// of are the spans of the trace of a version of upstream's: the root, and the others by name.
func (s *sink) of(t *testing.T, version string) (root tracetest.SpanStub, others map[string][]tracetest.SpanStub) {
	t.Helper()
	roots := s.named("xds.update")
	i := slices.IndexFunc(roots, func(r tracetest.SpanStub) bool {
		return attributes(r)["xds.upstream.version"] == version
	})
	if i < 0 {
		t.Fatalf("no trace of version %s among %d", version, len(roots))
	}
	others = make(map[string][]tracetest.SpanStub)
	for _, span := range s.GetSpans() {
		if span.SpanContext.TraceID() == roots[i].SpanContext.TraceID() && span.Parent.IsValid() {
			others[span.Name] = append(others[span.Name], span)
		}
	}
	return roots[i], others
}

// TestOneChange: from upstream to the ACK, a change is one trace.
func TestOneChange(t *testing.T) {
	w := newWorld(t, &tracing.Options{Ratio: 1}, nil)
	c := w.settled("envoy-1")
	w.plane.publish(cache.Cluster, "v1", "a", "b")
	c.ack(c.receive())
	w.spans.await(t, "xds.update", 2)
	root, others := w.spans.of(t, "v1")
	has(t, root, map[string]any{
		"xds.type": "CDS", "xds.resources.added": int64(2), "xds.resources.removed": int64(0), "xds.upstream.entry": w.plane.address,
		"xds.upstream.nonce": "up2", "xds.upstream.mode": "delta", "xds.upstream.stream": "main",
	})
	if bytes, _ := attributes(root)["xds.bytes"].(int64); bytes < 100 {
		t.Errorf("the response had %d bytes", bytes)
	}
	if root.Parent.IsValid() || len(others["cache.apply"]) != 1 || len(others["fanout"]) != 1 || len(others["xds.push"]) != 1 {
		t.Fatalf("not one of each: %v", others)
	}
	apply, fan, push := others["cache.apply"][0], others["fanout"][0], others["xds.push"][0]
	if apply.Parent.SpanID() != root.SpanContext.SpanID() || fan.Parent.SpanID() != root.SpanContext.SpanID() || push.Parent.SpanID() != fan.SpanContext.SpanID() {
		t.Error("they are not each other's children")
	}
	has(t, fan, map[string]any{"xds.clients.concerned": int64(1), "xds.clients.acked": int64(1), "xds.clients.waiting": int64(0), "xds.clients.shown": int64(1)})
	has(t, push, map[string]any{
		"xds.client.node": "envoy-1", "xds.client.protocol": "delta", "xds.type": "CDS", "xds.outcome": "ack",
		"xds.resources.added": int64(2), "xds.updates": int64(1),
	})
	if got := events(push); !slices.Equal(got, []string{"sent", "ack"}) && !slices.Equal(got, []string{"ack"}) {
		t.Errorf("events of the push: %v", got)
	}
	for _, s := range []tracetest.SpanStub{apply, fan, push} {
		if s.StartTime.Before(root.StartTime) || s.EndTime.After(root.EndTime) || s.EndTime.Before(s.StartTime) {
			t.Errorf("%s is from %v to %v, its trace from %v to %v", s.Name, s.StartTime, s.EndTime, root.StartTime, root.EndTime)
		}
	}
	if len(push.Links) != 0 || len(root.Links) != 0 {
		t.Error("there are links, and nothing was merged")
	}
	for _, a := range []attribute.KeyValue{attribute.String("service.name", "xds-relay"), attribute.String("service.version", "v1.2.3"), attribute.String("service.instance.id", "relay-0")} {
		if v, ok := root.Resource.Set().Value(a.Key); !ok || v != a.Value {
			t.Errorf("the resource says %v of %s", v, a.Key)
		}
	}
}

// TestSubscribe: a client's first request of a type, up to its first answer.
func TestSubscribe(t *testing.T) {
	w := newWorld(t, &tracing.Options{Ratio: 1}, nil)
	c := w.settled("envoy-1")
	c.subscribe(cache.Endpoint, "never")
	w.plane.asked()
	span := w.spans.await(t, "xds.subscribe", 1)[0]
	has(t, span, map[string]any{"xds.type": "CDS", "xds.answered": true, "xds.client.node": "envoy-1", "xds.resources.added": int64(1)})
	c.cancel()
	has(t, w.spans.await(t, "xds.subscribe", 2)[1], map[string]any{"xds.type": "EDS", "xds.answered": false})
}

// TestNack: what a client rejects is exported whatever the ratio, with the names that it
// was sent; what it accepts is not.
func TestNack(t *testing.T) {
	w := newWorld(t, &tracing.Options{Nacks: true}, nil)
	c := w.settled("envoy-1")
	var names []string
	for i := range 15 {
		names = append(names, fmt.Sprintf("c%02d", i))
	}
	w.plane.publish(cache.Cluster, "bad", names...)
	c.nack(c.receive(), "no such filter")
	w.plane.publish(cache.Cluster, "good", "a")
	c.ack(c.receive())
	w.spans.await(t, "xds.update", 1)
	w.close()
	root, others := w.spans.of(t, "bad")
	if n := len(w.spans.named("xds.update")); n != 1 {
		t.Errorf("%d traces, want the one that was rejected", n)
	}
	if len(w.spans.named("xds.subscribe")) != 0 {
		t.Error("a subscription was exported")
	}
	push := others["xds.push"][0]
	has(t, push, map[string]any{"xds.outcome": "nack"})
	nack := push.Events[len(push.Events)-1]
	got := map[attribute.Key]attribute.Value{}
	for _, a := range nack.Attributes {
		got[a.Key] = a.Value
	}
	if nack.Name != "nack" || got["message"].AsString() != "no such filter" || len(got["xds.resources"].AsStringSlice()) != 10 {
		t.Errorf("the event says %v", nack)
	}
	if push.Status.Description != "no such filter" || !push.SpanContext.IsSampled() || root.SpanContext.TraceID() != push.SpanContext.TraceID() {
		t.Errorf("the span says %+v", push.Status)
	}
}

// TestMerge: a response that tells of two updates has a link to each, and is part of both
// traces.
func TestMerge(t *testing.T) {
	w := newWorld(t, &tracing.Options{Ratio: 1}, nil)
	c := w.settled("envoy-1")
	w.plane.publish(cache.Cluster, "v1", "a")
	first := c.receive() // and does not acknowledge it
	w.plane.publish(cache.Cluster, "v2", "b")
	w.plane.publish(cache.Cluster, "v3", "c")
	c.ack(first)
	merged := c.receive()
	if len(merged.GetResources()) != 2 {
		t.Fatalf("got %d resources, want both", len(merged.GetResources()))
	}
	c.ack(merged)
	w.spans.await(t, "xds.update", 4)
	two, ofTwo := w.spans.of(t, "v2")
	three, ofThree := w.spans.of(t, "v3")
	for _, others := range []map[string][]tracetest.SpanStub{ofTwo, ofThree} {
		if len(others["xds.push"]) != 1 {
			t.Fatalf("%d responses in a trace", len(others["xds.push"]))
		}
		push := others["xds.push"][0]
		has(t, push, map[string]any{"xds.updates": int64(2), "xds.outcome": "ack"})
		if len(push.Links) != 2 || !push.Links[0].SpanContext.Equal(two.SpanContext) || !push.Links[1].SpanContext.Equal(three.SpanContext) {
			t.Errorf("links: %v", push.Links)
		}
		has(t, others["fanout"][0], map[string]any{"xds.clients.concerned": int64(1), "xds.clients.acked": int64(1)})
	}
	if _, one := w.spans.of(t, "v1"); len(one["xds.push"][0].Links) != 0 {
		t.Error("what merges nothing has links")
	}
}

// TestTheSlowest: of many clients the slowest are shown, and the others are counted; those
// that do not answer are the slowest of all.
func TestTheSlowest(t *testing.T) {
	w := newWorld(t, &tracing.Options{Slow: true, SlowAfter: time.Nanosecond, Limits: tracing.Limits{Slowest: 3, Window: time.Second}}, nil)
	clients := []*client{w.settled("c0")}
	for i := 1; i < 8; i++ {
		c := w.client(fmt.Sprintf("c%d", i))
		c.subscribe(cache.Cluster)
		c.ack(c.receive())
		clients = append(clients, c)
	}
	// That the ACKs of what they had are in, another change tells: it goes out to all.
	w.plane.publish(cache.Cluster, "v1", "a")
	for i, c := range clients {
		if resp := c.receive(); i != 5 {
			c.ack(resp)
		}
	}
	w.spans.await(t, "xds.update", 2)
	_, others := w.spans.of(t, "v1")
	has(t, others["fanout"][0], map[string]any{"xds.clients.concerned": int64(8), "xds.clients.acked": int64(7), "xds.clients.waiting": int64(1), "xds.clients.shown": int64(3)})
	waiting := 0
	for _, push := range others["xds.push"] {
		if attributes(push)["xds.outcome"] == "waiting" {
			waiting++
			has(t, push, map[string]any{"xds.client.node": "c5"})
		}
	}
	if len(others["xds.push"]) != 3 || waiting != 1 {
		t.Errorf("%d clients shown, %d of which wait", len(others["xds.push"]), waiting)
	}
}

// TestNames: whoever does not want a name is not concerned, and who goes away keeps nothing
// open.
func TestNames(t *testing.T) {
	w := newWorld(t, &tracing.Options{Ratio: 1, Limits: tracing.Limits{Window: time.Hour}}, nil)
	one, two := w.client("one"), w.client("two")
	one.subscribe(cache.Endpoint, "x")
	w.plane.asked()
	two.subscribe(cache.Endpoint, "x", "y")
	w.plane.asked()
	w.plane.publish(cache.Endpoint, "v1", "x", "y")
	one.ack(one.receive())
	two.ack(two.receive())
	w.plane.publish(cache.Endpoint, "v2", "y")
	two.receive()
	two.cancel()
	w.spans.await(t, "xds.update", 2)
	_, first := w.spans.of(t, "v1")
	has(t, first["fanout"][0], map[string]any{"xds.clients.concerned": int64(2), "xds.clients.acked": int64(2)})
	_, second := w.spans.of(t, "v2")
	has(t, second["fanout"][0], map[string]any{"xds.clients.concerned": int64(1), "xds.clients.gone": int64(1), "xds.clients.waiting": int64(0)})
	has(t, second["xds.push"][0], map[string]any{"xds.client.node": "two", "xds.outcome": "gone"})
}

// TestUntold: a client that is gone before it could be told, or that does not want to know any
// more, keeps no update open; nor does one that is far behind.
func TestUntold(t *testing.T) {
	w := newWorld(t, &tracing.Options{Ratio: 1, Limits: tracing.Limits{Window: time.Hour}}, nil)
	c := w.client("envoy-1")
	c.subscribe(cache.Endpoint, "x", "y")
	w.plane.asked()
	w.plane.publish(cache.Endpoint, "v1", "x", "y")
	first := c.receive() // and owes an ACK from now on
	w.plane.publish(cache.Endpoint, "v2", "y")
	c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Endpoint), ResourceNamesUnsubscribe: []string{"y"}})
	c.ack(first)
	w.spans.await(t, "xds.update", 2)
	_, unwanted := w.spans.of(t, "v2")
	has(t, unwanted["fanout"][0], map[string]any{"xds.clients.concerned": int64(1), "xds.clients.untold": int64(1), "xds.clients.shown": int64(0)})

	w.plane.publish(cache.Endpoint, "v3", "x")
	c.receive()
	const updates = 40
	for n := range updates {
		w.plane.publish(cache.Endpoint, fmt.Sprintf("w%d", n), "x")
	}
	const followed = 32
	w.spans.await(t, "xds.update", 2+updates-followed)
	c.cancel()
	w.spans.await(t, "xds.update", 3+updates)
	behind := int64(0)
	for _, fan := range w.spans.named("fanout") {
		n, _ := attributes(fan)["xds.clients.behind"].(int64)
		behind += n
		has(t, fan, map[string]any{"xds.clients.concerned": int64(1), "xds.clients.waiting": int64(0)})
	}
	if behind < updates-followed {
		t.Errorf("it was too far behind for %d updates, want %d at least", behind, updates-followed)
	}
	_, late := w.spans.of(t, "w0")
	has(t, late["fanout"][0], map[string]any{"xds.clients.concerned": int64(1), "xds.clients.untold": int64(1), "xds.clients.waiting": int64(0)})
}

// TestSotW: the same of a client that speaks SotW, by name and by wildcard; an update that
// changes nothing concerns nobody.
func TestSotW(t *testing.T) {
	w := newWorld(t, &tracing.Options{Ratio: 1, Limits: tracing.Limits{Window: time.Hour}}, nil)
	s, err := discovery.NewAggregatedDiscoveryServiceClient(w.conn).StreamAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range []cache.TypeURL{cache.Cluster, cache.Endpoint} {
		var names []string
		if typ == cache.Endpoint {
			names = []string{"a"}
		}
		said := w.plane.said
		req := &discovery.DiscoveryRequest{Node: &core.Node{Id: "grpc"}, TypeUrl: string(typ), ResourceNames: names}
		if err := s.Send(req); err != nil {
			t.Fatal(err)
		}
		w.plane.asked()
		for _, version := range []string{"v1", "v2"} {
			w.plane.publish(typ, version, "a")
			resp, err := s.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Send(&discovery.DiscoveryRequest{TypeUrl: string(typ), ResourceNames: names, VersionInfo: resp.GetVersionInfo(), ResponseNonce: resp.GetNonce()}); err != nil {
				t.Fatal(err)
			}
		}
		w.plane.publish(typ, "v2", "a")
		w.spans.await(t, "xds.update", said+3)
	}
	acked := 0
	for _, fan := range w.spans.named("fanout") {
		has(t, fan, map[string]any{"xds.clients.concerned": attributes(fan)["xds.clients.acked"]})
		acked += int(attributes(fan)["xds.clients.acked"].(int64))
	}
	if acked != 4 {
		t.Errorf("%d were acknowledged, want 4", acked)
	}
}

// TestOff: without a Tracer nothing follows an update.
func TestOff(t *testing.T) {
	w := newWorld(t, nil, nil)
	c := w.settled("envoy-1")
	w.plane.publish(cache.Cluster, "v1", "a")
	c.ack(c.receive())
	w.close()
	if n := len(w.spans.GetSpans()); n != 0 {
		t.Errorf("%d spans", n)
	}
}
