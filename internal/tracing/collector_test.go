package tracing_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/relay"
	"github.com/xds-relay/xds-relay/internal/tracing"
)

// receiver is what a collector has at its port for OTLP over gRPC.
type receiver struct {
	collector.UnimplementedTraceServiceServer
	came chan *otlp.ResourceSpans
}

func (r *receiver) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	for _, s := range req.GetResourceSpans() {
		r.came <- s
	}
	return new(collector.ExportTraceServiceResponse), nil
}

// collect starts a receiver; it returns its address.
func collect(t *testing.T, o ...grpc.ServerOption) (*receiver, string) {
	t.Helper()
	r := &receiver{came: make(chan *otlp.ResourceSpans, 1000)}
	s, l := grpc.NewServer(o...), listen(t)
	collector.RegisterTraceServiceServer(s, r)
	serve(t, s, l)
	return r, l.Addr().String()
}

// configured is a world whose Tracer comes from a configuration, as serve has it.
func configured(t *testing.T, log *slog.Logger, set ...string) *world {
	t.Helper()
	w := &world{t: t, plane: newPlane(t)}
	c, err := config.Load("", append(set, "instance=relay-0"))
	if err != nil {
		t.Fatal(err)
	}
	if w.tracer, err = relay.NewTracer(c, "v1.2.3", log); err != nil {
		t.Fatal(err)
	}
	w.start(nil)
	return w
}

// change makes one change that a client accepts, and stops the relay: that is when the
// trace is sent at the latest.
func (w *world) change() {
	w.t.Helper()
	c := w.settled("envoy-1")
	w.plane.publish(cache.Cluster, "v1", "a")
	c.ack(c.receive())
	w.close()
}

// spansOf are the spans that have come, by name, and what the resource says of itself.
func (r *receiver) spansOf(t *testing.T) (spans map[string][]*otlp.Span, resource map[string]string) {
	t.Helper()
	spans, resource = make(map[string][]*otlp.Span), make(map[string]string)
	for {
		select {
		case rs := <-r.came:
			for _, a := range rs.GetResource().GetAttributes() {
				resource[a.GetKey()] = a.GetValue().GetStringValue()
			}
			for _, ss := range rs.GetScopeSpans() {
				for _, s := range ss.GetSpans() {
					spans[s.GetName()] = append(spans[s.GetName()], s)
				}
			}
		default:
			return spans, resource
		}
	}
}

// TestCollector: a change, as a collector gets it, in plaintext and over TLS.
func TestCollector(t *testing.T) {
	t.Run("plaintext", func(t *testing.T) {
		r, address := collect(t)
		w := configured(t, slog.New(slog.DiscardHandler), "tracing.otlp_endpoint=http://"+address, "tracing.sample_ratio=1")
		w.change()
		arrived(t, r)
	})
	t.Run("TLS", func(t *testing.T) {
		ca, server := certificate(t)
		r, address := collect(t, grpc.Creds(credentials.NewServerTLSFromCert(&server)))
		w := configured(t, slog.New(slog.DiscardHandler), "tracing.otlp_endpoint=https://"+address, "tracing.sample_ratio=1", "tracing.tls.ca="+ca)
		w.change()
		arrived(t, r)
	})
}

func arrived(t *testing.T, r *receiver) {
	t.Helper()
	spans, resource := r.spansOf(t)
	if len(spans["xds.update"]) != 2 || len(spans["cache.apply"]) != 2 || len(spans["fanout"]) != 2 || len(spans["xds.push"]) != 2 || len(spans["xds.subscribe"]) != 1 {
		t.Fatalf("got %v", spans)
	}
	if resource["service.name"] != "xds-relay" || resource["service.version"] != "v1.2.3" || resource["service.instance.id"] != "relay-0" {
		t.Errorf("the resource says %v", resource)
	}
	update := spans["xds.update"][0]
	var last *otlp.Span
	for _, push := range spans["xds.push"] {
		if bytes.Equal(push.GetTraceId(), update.GetTraceId()) {
			last = push
		}
	}
	if last == nil || len(last.GetEvents()) == 0 || last.GetEvents()[len(last.GetEvents())-1].GetName() != "ack" {
		t.Errorf("the trace does not lead to an ACK: %v", last)
	}
	t.Logf("as the collector has it:\n%v\n%v", update, last)
}

// TestDeadCollector: whether a collector refuses, or takes connections and says nothing, the
// relay goes on, its end does not wait for it, nothing is left running, and the log has a
// line or two.
func TestDeadCollector(t *testing.T) {
	for _, c := range []struct {
		name  string
		start func(t *testing.T) (address string)
	}{
		{"refuses", func(t *testing.T) string {
			l := listen(t)
			defer l.Close()
			return l.Addr().String()
		}},
		{"says nothing", func(t *testing.T) string {
			l := listen(t) // and nobody accepts
			t.Cleanup(func() { l.Close() })
			return l.Addr().String()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log lockedBuffer
			exporter, err := tracing.OTLP("http://"+c.start(t), nil)
			if err != nil {
				t.Fatal(err)
			}
			w := &world{t: t, plane: newPlane(t)}
			w.tracer = tracing.New(tracing.Options{
				Exporter: exporter, Ratio: 1, Log: slog.New(slog.NewTextHandler(&log, nil)),
				Limits: tracing.Limits{Batch: time.Millisecond, Flush: 50 * time.Millisecond, Export: time.Hour, Spans: 4, Queue: 1},
			})
			w.start(nil)
			client := w.settled("envoy-1")
			for range 20 {
				w.plane.publish(cache.Cluster, time.Now().String(), "a")
				client.ack(client.receive())
			}
			w.close()
			lines := strings.Split(strings.TrimSpace(log.String()), "\n")
			if len(lines) != 1 || !strings.Contains(lines[0], "traces are lost") {
				t.Errorf("the log has %d lines:\n%s", len(lines), log.String())
			}
		})
	}
}

// lockedBuffer is where a log may write from any goroutine.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}
