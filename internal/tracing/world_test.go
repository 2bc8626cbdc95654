package tracing_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/anypb"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/relay"
	"github.com/xds-relay/xds-relay/internal/tracing"
)

// patience is for how long something is waited for that must come.
const patience = 20 * time.Second

// sink is an exporter that keeps what it is given, past its end, and says that something came.
type sink struct {
	tracetest.InMemoryExporter
	came chan struct{}
}

func newSink() *sink { return &sink{came: make(chan struct{}, 1)} }

func (s *sink) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := s.InMemoryExporter.ExportSpans(ctx, spans)
	select {
	case s.came <- struct{}{}:
	default:
	}
	return err
}

func (s *sink) Shutdown(context.Context) error { return nil }

// named are the spans of a name, in the order of their beginnings.
func (s *sink) named(name string) (all tracetest.SpanStubs) {
	for _, span := range s.GetSpans() {
		if span.Name == name {
			all = append(all, span)
		}
	}
	slices.SortFunc(all, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	return all
}

// await waits until there are so many spans of a name.
func (s *sink) await(t *testing.T, name string, n int) tracetest.SpanStubs {
	t.Helper()
	late := time.After(patience)
	for {
		if all := s.named(name); len(all) >= n {
			return all
		}
		select {
		case <-s.came:
		case <-late:
			t.Fatalf("%d spans named %s, want %d; there are %v", len(s.named(name)), name, n, s.GetSpans())
		}
	}
}

// plane is a control plane that says what it is told to, on its one stream.
type plane struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	t       *testing.T
	address string
	server  *grpc.Server
	streams chan discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
	heard   chan *discovery.DeltaDiscoveryRequest
	stream  discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
	said    int
}

func newPlane(t *testing.T) *plane {
	p := &plane{
		t: t, server: grpc.NewServer(), heard: make(chan *discovery.DeltaDiscoveryRequest, 1000),
		streams: make(chan discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer, 10),
	}
	l := listen(t)
	p.address = l.Addr().String()
	discovery.RegisterAggregatedDiscoveryServiceServer(p.server, p)
	serve(t, p.server, l)
	return p
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// serve serves until the test ends.
func serve(t *testing.T, s *grpc.Server, l net.Listener) {
	var work sync.WaitGroup
	work.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() {
		s.Stop()
		work.Wait()
	})
}

func (p *plane) DeltaAggregatedResources(s discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	p.streams <- s
	for {
		req, err := s.Recv()
		if err != nil {
			return err
		}
		p.heard <- req
	}
}

// publish sends resources, and waits for their ACK: the relay has them.
func (p *plane) publish(typ cache.TypeURL, version string, names ...string) {
	p.t.Helper()
	if p.stream == nil {
		p.stream = <-p.streams
	}
	p.said++
	resp := &discovery.DeltaDiscoveryResponse{TypeUrl: string(typ), Nonce: fmt.Sprintf("up%d", p.said), SystemVersionInfo: version}
	for _, name := range names {
		resp.Resources = append(resp.Resources, &discovery.Resource{
			Name: name, Version: version, Resource: &anypb.Any{TypeUrl: string(typ), Value: []byte(name + "@" + version)},
		})
	}
	if err := p.stream.Send(resp); err != nil {
		p.t.Fatal(err)
	}
	late := time.After(patience)
	for {
		select {
		case req := <-p.heard:
			if req.GetResponseNonce() == resp.GetNonce() {
				return
			}
		case <-late:
			p.t.Fatal("the relay has not acknowledged", resp)
		}
	}
}

// asked waits until the relay has asked for something.
func (p *plane) asked() {
	p.t.Helper()
	select {
	case <-p.heard:
	case <-time.After(patience):
		p.t.Fatal("the relay has asked for nothing")
	}
}

// world is a relay on real sockets between a plane and clients.
type world struct {
	t      *testing.T
	plane  *plane
	spans  *sink
	tracer *tracing.Tracer
	relay  *relay.Relay
	conn   *grpc.ClientConn
	close  func()
}

// newWorld starts a relay that is traced as the options say; nil: it is not.
func newWorld(t *testing.T, o *tracing.Options, observer downstream.Observer) *world {
	t.Helper()
	w := &world{t: t, plane: newPlane(t), spans: newSink()}
	if o != nil {
		o.Exporter, o.Version, o.Instance = w.spans, "v1.2.3", "relay-0"
		o.Limits.Batch = time.Millisecond
		w.tracer = tracing.New(*o)
	}
	w.start(observer)
	return w
}

func (w *world) start(observer downstream.Observer) {
	w.t.Helper()
	c, err := config.Load("", []string{"upstream.address=" + w.plane.address, "downstream.listen=[127.0.0.1:0]", "timers.settle=1ms", "timers.ack_timeout=1h"})
	if err != nil {
		w.t.Fatal(err)
	}
	options := relay.Options{Downstream: observer}
	options.Trace(w.tracer)
	if w.relay, err = relay.New(c, options); err != nil {
		w.t.Fatal(err)
	}
	l := listen(w.t)
	w.relay.Serve(l)
	if w.conn, err = grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		w.t.Fatal(err)
	}
	w.close = sync.OnceFunc(func() {
		w.conn.Close()
		w.relay.Close(0)
		w.tracer.Close()
	})
	w.t.Cleanup(w.close)
}

// client is a Delta ADS client that does what it is told.
type client struct {
	t      *testing.T
	node   string
	stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	cancel context.CancelFunc
}

func (w *world) client(node string) *client {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	w.t.Cleanup(cancel)
	s, err := discovery.NewAggregatedDiscoveryServiceClient(w.conn).DeltaAggregatedResources(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	return &client{w.t, node, s, cancel}
}

func (c *client) send(req *discovery.DeltaDiscoveryRequest) {
	c.t.Helper()
	if err := c.stream.Send(req); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) subscribe(typ cache.TypeURL, names ...string) {
	c.t.Helper()
	c.send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: c.node}, TypeUrl: string(typ), ResourceNamesSubscribe: names})
}

func (c *client) receive() *discovery.DeltaDiscoveryResponse {
	c.t.Helper()
	resp, err := c.stream.Recv()
	if err != nil {
		c.t.Fatal(err)
	}
	return resp
}

func (c *client) ack(resp *discovery.DeltaDiscoveryResponse) {
	c.t.Helper()
	c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce()})
}

func (c *client) nack(resp *discovery.DeltaDiscoveryResponse, message string) {
	c.t.Helper()
	c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce(), ErrorDetail: &statuspb.Status{Code: 3, Message: message}})
}

// settled: a client that has all clusters, and has accepted them.
func (w *world) settled(node string) *client {
	w.t.Helper()
	c := w.client(node)
	c.subscribe(cache.Cluster)
	w.plane.asked()
	w.plane.publish(cache.Cluster, "v0", "a")
	c.ack(c.receive())
	return c
}
