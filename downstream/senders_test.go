package downstream

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
)

// TestABusySenderLooksAgain: a change that comes while another response is sent to the client is
// sent by the same sender after that (G3).
func TestABusySenderLooksAgain(t *testing.T) {
	hub := fanout.NewHub(fanout.Config{Linger: time.Minute})
	s := NewServer(ServerConfig{
		Config: session.Config{MaxName: 100, MaxNames: 100}, Credentials: insecure.NewCredentials(),
		Groups: oneGroup{hub}, MaxRequest: 1 << 20, Log: slog.New(slog.DiscardHandler),
	}) // pushes wait for no ACK
	defer s.Close(0)
	version := 0
	change := func(typ cache.TypeURL) {
		version++
		body := &anypb.Any{TypeUrl: string(typ), Value: fmt.Append(nil, version)}
		r := cache.NewResource(typ, &discovery.Resource{Name: "a", Resource: body}, cache.Fingerprint{})
		hub.Apply(fanout.Lane{Type: typ, Wildcard: true}, &cache.Update{Set: []cache.Received{{Resource: r}}, Synced: true})
	}
	sink := new(sink)
	st := &stream{server: s, kind: session.Stream{Delta: true}, grpc: sink, status: sink, sendTurn: sendTurn{quiet: make(chan struct{})}}
	st.session = session.New(&s.now.Load().Config, st.kind, st.peer, s.config.Groups, s.clusterDeliveries, st.kick)
	st.sending.Store(busy) // as if a sender had taken it
	for _, typ := range []cache.TypeURL{cache.Cluster, cache.Endpoint} {
		req := &discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "n"}, TypeUrl: string(typ), ResourceNamesSubscribe: []string{"*"}}
		if _, end := st.session.DeltaRequest(req, time.Now()); end != nil {
			t.Fatal(end)
		}
		change(typ)
	}
	st.send(true)
	st.sending.Store(busy)
	change(cache.Cluster)
	sink.sent, sink.during = 0, func() { change(cache.Endpoint) }
	st.send(true)
	if sink.sent != 2 {
		t.Errorf("%d responses were sent, want that of the clusters, and that of the endpoints that changed meanwhile", sink.sent)
	}
	if now := st.sending.Load(); now != idle {
		t.Errorf("the stream is %d when all is sent, want %d: nobody is at work", now, idle)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.timer != nil {
		st.timer.Stop()
	}
	st.session.Close(time.Now())
}

// sink is a client that takes everything; something happens while it takes the first thing.
type sink struct {
	grpc.ServerStream
	during func()
	sent   int
}

// Context implements grpc.ServerStream.
func (s *sink) Context() context.Context { return context.Background() }

// SendMsg implements grpc.ServerStream.
func (s *sink) SendMsg(any) error {
	if s.sent++; s.sent == 1 && s.during != nil {
		s.during()
	}
	return nil
}

// WriteStatus implements statusWriter.
func (s *sink) WriteStatus(*status.Status) error { return nil }

// TestSendersCheckFinds: check finds a stream that is queued twice, or queued although it is
// idle.
func TestSendersCheckFinds(t *testing.T) {
	st, s := new(stream), newSenders(1)
	if broken := s.check(); len(broken) > 0 {
		t.Error(broken)
	}
	s.queue, s.looking, s.running = []*stream{st, st}, true, 1
	if broken := s.check(); len(broken) != 3 { // twice, and idle each time
		t.Errorf("%d faults are found, want 3: %q", len(broken), broken)
	}
	st.sending.Store(busy)
	s.queue, s.running = []*stream{st}, 0
	if broken := s.check(); len(broken) != 1 {
		t.Errorf("%d faults are found, want 1: nobody sends; %q", len(broken), broken)
	}
}
