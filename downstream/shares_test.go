package downstream

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
)

// hosts are a network on which each client has the address that it says.
type hosts struct{ *pipes }

// from is the server's end of a connection.
type from struct {
	net.Conn
	address net.Addr
}

func (f from) RemoteAddr() net.Addr { return f.address }

func (h hosts) dial(address string) net.Conn {
	client, server := net.Pipe()
	h.come <- from{server, &net.TCPAddr{IP: net.ParseIP(address), Port: 1}}
	return client
}

// connect returns a connection from an address; each is a new one.
func (h hosts) connect(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	dial := func(context.Context, string) (net.Conn, error) { return h.dial(address), nil }
	conn, err := grpc.NewClient("passthrough:///relay", grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// endings counts why streams end, and names that are refused.
type endings struct {
	closings
	ends  map[session.Reason]int
	names int
}

func (e *endings) ClientDisconnected(_ string, reason session.Reason) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ends[reason]++
}

// ended is how many ended for a reason.
func (e *endings) ended(reason session.Reason) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ends[reason]
}

func (e *endings) ClientNamesRefused(_ session.Reason, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.names += n
}

// sharing runs a test with a Server that has clients with addresses, in a bubble.
func sharing(t *testing.T, c ServerConfig, test func(t *testing.T, h hosts, s *Server, seen *endings)) {
	synctest.Test(t, func(t *testing.T) {
		h, seen := hosts{newPipes()}, &endings{ends: make(map[session.Reason]int)}
		c.Config.AckTimeout, c.Config.MaxName = time.Minute, 100
		if c.Config.MaxNames == 0 {
			c.Config.MaxNames = 100
		}
		c.Groups, c.Credentials, c.Observer = oneGroup{fanout.NewHub(fanout.Config{})}, insecure.NewCredentials(), seen
		s, stop := serving(t, c, h)
		defer stop()
		test(t, h, s, seen)
		if broken := s.Check(); len(broken) > 0 {
			t.Errorf("does not hold: %q", broken)
		}
	})
}

type ads = grpc.BidiStreamingClient[discovery.DeltaDiscoveryRequest, discovery.DeltaDiscoveryResponse]

// open opens a stream.
func open(t *testing.T, conn *grpc.ClientConn) ads {
	t.Helper()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return stream
}

// endOf returns how a stream has ended, or nil if it has not.
func endOf(stream grpc.ClientStream) *status.Status {
	got := make(chan error, 1)
	go func() {
		got <- stream.RecvMsg(new(discovery.DeltaDiscoveryResponse))
	}()
	synctest.Wait()
	select {
	case err := <-got:
		return status.Convert(err)
	default:
		return nil
	}
}

// TestStreamsAreShared: when all streams are taken, the newest one of the client with most makes room for one with fewer.
// Streams count although nothing was asked on them.
func TestStreamsAreShared(t *testing.T) {
	sharing(t, ServerConfig{MaxStreamsOfAll: 3}, func(t *testing.T, h hosts, s *Server, seen *endings) {
		many, other := h.connect(t, "192.0.2.1"), h.connect(t, "198.51.100.1")
		defer many.Close()
		defer other.Close()
		var all []ads
		for range 3 {
			all = append(all, open(t, many))
		}
		if end := endOf(open(t, many)); end.Code() != codes.ResourceExhausted || !strings.Contains(end.Message(), "downstream.max_streams") {
			t.Errorf("one too many of one client: %v", end)
		}
		fine := open(t, other)
		if end := endOf(fine); end != nil {
			t.Errorf("a newcomer: %v", end)
		}
		if end := endOf(all[2]); end.Code() != codes.ResourceExhausted || !strings.Contains(end.Message(), "client with fewer") {
			t.Errorf("the newest one of the other client: %v", end)
		}
		if end := endOf(all[0]); end != nil {
			t.Errorf("an older one: %v", end)
		}
		if seen.ended(session.StreamsFull) != 1 || seen.ended(session.DisplacedStream) != 1 {
			t.Errorf("counted: %v", seen.ends)
		}
	})
}

// TestNamesAreShared: the same for names. A stream that gets fewer than it asks for goes on.
func TestNamesAreShared(t *testing.T) {
	sharing(t, ServerConfig{MaxNamesOfAll: 10}, func(t *testing.T, h hosts, s *Server, seen *endings) {
		ask := func(stream ads, from, to int) {
			req := &discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Endpoint)}
			for i := from; i < to; i++ {
				req.ResourceNamesSubscribe = append(req.ResourceNamesSubscribe, fmt.Sprint(i))
			}
			if err := stream.Send(req); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		many, other := h.connect(t, "192.0.2.1"), h.connect(t, "198.51.100.1")
		defer many.Close()
		defer other.Close()
		first, second := open(t, many), open(t, many)
		ask(first, 0, 6)
		ask(second, 0, 6)
		if r, err := second.Recv(); err != nil || len(r.GetResourceErrors()) != 2 || r.GetResourceErrors()[0].GetErrorDetail().GetCode() != int32(codes.ResourceExhausted) {
			t.Errorf("beyond the total: %v, %v", r, err)
		}
		if n := s.Summary().Names; n != 10 || seen.names != 2 {
			t.Errorf("%d names, %d refused", n, seen.names)
		}
		fine := open(t, other)
		ask(fine, 10, 13)
		if end := endOf(fine); end != nil {
			t.Errorf("a newcomer: %v", end)
		}
		if end := endOf(second); end.Code() != codes.ResourceExhausted || seen.ended(session.DisplacedNames) != 1 {
			t.Errorf("the newest stream of the other client: %v", end)
		}
		if n := s.Summary().Names; n != 9 {
			t.Errorf("%d names, want those of two streams", n)
		}
	})
}

// TestNamesOfSotWAreShared: a SotW stream that cannot have all its names ends, and nobody else for it.
func TestNamesOfSotWAreShared(t *testing.T) {
	sharing(t, ServerConfig{MaxNamesOfAll: 10}, func(t *testing.T, h hosts, s *Server, seen *endings) {
		conns := [2]*grpc.ClientConn{h.connect(t, "192.0.2.1"), h.connect(t, "198.51.100.1")}
		ask := func(conn *grpc.ClientConn, names int) *status.Status {
			stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			req := &discovery.DiscoveryRequest{TypeUrl: string(cache.Endpoint)}
			for i := range names {
				req.ResourceNames = append(req.ResourceNames, fmt.Sprint(i))
			}
			if err := stream.Send(req); err != nil {
				t.Fatal(err)
			}
			return endOf(stream)
		}
		for _, conn := range conns {
			defer conn.Close()
		}
		for range 2 {
			if end := ask(conns[0], 5); end != nil {
				t.Errorf("who takes all: %v", end)
			}
		}
		if end := ask(conns[1], 6); end.Code() != codes.ResourceExhausted || seen.ended(session.NamesFull) != 1 || seen.ended(session.DisplacedNames) != 0 {
			t.Errorf("6 names: %v, ended: %v", end, seen.ends)
		}
		if end := ask(conns[1], 5); end != nil || seen.ended(session.DisplacedNames) != 1 {
			t.Errorf("5 names: %v, ended: %v", end, seen.ends)
		}
	})
}

// TestConnectionsAreShared: the same for connections, which are closed.
func TestConnectionsAreShared(t *testing.T) {
	sharing(t, ServerConfig{MaxConnections: 3, MoreConnections: "raise it"}, func(t *testing.T, h hosts, s *Server, seen *endings) {
		var all []ads
		for range 3 {
			conn := h.connect(t, "2001:db8::1")
			defer conn.Close()
			all = append(all, open(t, conn))
		}
		other := h.connect(t, "2001:db8:0:1::1")
		defer other.Close()
		fine := open(t, other)
		if end := endOf(fine); end != nil {
			t.Errorf("a newcomer: %v", end)
		}
		if end := endOf(all[2]); end.Code() != codes.Unavailable {
			t.Errorf("on the newest one of the other client: %v", end)
		}
		if end := endOf(all[1]); end != nil || seen.of(ClosedDisplaced) == 0 {
			t.Errorf("on an older one: %v; %v", end, seen.counts)
		}
	})
}

// TestMemoryPressure: while memory is short new streams and calls are refused, and those that are there go on.
func TestMemoryPressure(t *testing.T) {
	var short atomic.Bool
	sharing(t, ServerConfig{Pressed: short.Load}, func(t *testing.T, h hosts, s *Server, seen *endings) {
		conn := h.connect(t, "192.0.2.1")
		defer conn.Close()
		old := open(t, conn)
		short.Store(true)
		if end := endOf(open(t, conn)); end.Code() != codes.Unavailable || !strings.Contains(end.Message(), "memory is short") {
			t.Errorf("a new stream: %v", end)
		}
		if err := old.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Endpoint), ResourceNamesSubscribe: []string{"a"}}); err != nil {
			t.Error(err)
		}
		if end := endOf(old); end != nil || seen.ended(session.MemoryPressure) != 1 {
			t.Errorf("an old stream: %v; %v", end, seen.ends)
		}
	})
}

// TestFloodsEnd: a connection that opens streams too fast is closed, and its client waits 10 s, also with the connections
// that it has. Others notice nothing.
func TestFloodsEnd(t *testing.T) {
	sharing(t, ServerConfig{}, func(t *testing.T, h hosts, s *Server, seen *endings) {
		flood, beside, victim := h.connect(t, "192.0.2.1"), h.connect(t, "192.0.2.1"), h.connect(t, "198.51.100.1")
		for _, conn := range []*grpc.ClientConn{flood, beside, victim} {
			defer conn.Close()
		}
		old, fine := open(t, beside), open(t, victim)
		for range 1000 { // a burst of 100 is allowed
			ctx, cancel := context.WithCancel(t.Context())
			_, _ = discovery.NewAggregatedDiscoveryServiceClient(flood).DeltaAggregatedResources(ctx) // it may be refused
			cancel()
			if synctest.Wait(); seen.of(ClosedFlood) > 0 {
				break
			}
		}
		if seen.of(ClosedFlood) != 1 {
			t.Fatalf("closed: %v", seen.counts)
		}
		if end := endOf(open(t, beside)); end.Code() != codes.ResourceExhausted || seen.ended(mustWait) == 0 {
			t.Errorf("a stream on another connection of the client: %v; counted: %v", end, seen.ends)
		}
		for _, stream := range []ads{old, fine, open(t, victim)} {
			if end := endOf(stream); end != nil {
				t.Errorf("a stream of somebody else, or from before: %v", end)
			}
		}
		next := h.connect(t, "192.0.2.1")
		defer next.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := discovery.NewAggregatedDiscoveryServiceClient(next).DeltaAggregatedResources(ctx); err == nil || seen.of(ClosedWaiting) == 0 {
			t.Errorf("a new connection of the client: %v; %v", err, seen.counts)
		}
		next.Close()
		time.Sleep(floodWait)
		again := h.connect(t, "192.0.2.1")
		defer again.Close()
		if end := endOf(open(t, again)); end != nil {
			t.Errorf("after the wait: %v", end)
		}
	})
}

// TestConnectionsOfUseVouch: if another connection of the client has acknowledged something, however young it is, only
// the one that floods is closed.
func TestConnectionsOfUseVouch(t *testing.T) {
	sharing(t, ServerConfig{MaxNamesOfAll: 1}, func(t *testing.T, h hosts, _ *Server, seen *endings) {
		beside := h.connect(t, "192.0.2.1")
		defer beside.Close()
		useful(t, open(t, beside))
		flood := h.connect(t, "192.0.2.1")
		defer flood.Close()
		for range 1000 {
			ctx, cancel := context.WithCancel(t.Context())
			_, _ = discovery.NewAggregatedDiscoveryServiceClient(flood).DeltaAggregatedResources(ctx)
			cancel()
			if synctest.Wait(); seen.of(ClosedFlood) > 0 {
				break
			}
		}
		if end := endOf(open(t, beside)); end != nil || seen.of(ClosedFlood) != 1 {
			t.Errorf("a stream on the other connection: %v; %v", end, seen.counts)
		}
	})
}

// TestFloodsOverManyConnections: streams for nothing count over all connections of a client, whether they are reset or
// their connection is closed. Who only opens many, over many connections, is not meant.
func TestFloodsOverManyConnections(t *testing.T) {
	sharing(t, ServerConfig{}, func(t *testing.T, h hosts, _ *Server, seen *endings) {
		for i := range 8 { // 8 × 50 of a bucket of 100
			fleet := h.connect(t, "198.51.100.1")
			defer fleet.Close()
			for range 50 {
				if end := endOf(open(t, fleet)); end != nil {
					t.Fatalf("connection %d of many that stay: %v", i, end)
				}
			}
		}
		for _, resets := range []bool{true, false} {
			address := map[bool]string{true: "192.0.2.1", false: "192.0.2.2"}[resets]
			before := seen.of(ClosedFlood)
			for range 4 {
				conn := h.connect(t, address)
				for range 50 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					_, _ = discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx) // it may be refused
					synctest.Wait()
					if resets {
						cancel()
					}
					defer cancel()
				}
				conn.Close()
				synctest.Wait()
			}
			if seen.of(ClosedFlood) == before || seen.of(ClosedWaiting) == 0 {
				t.Errorf("resets: %v; closed: %v", resets, seen.counts)
			}
		}
	})
}

// useful has a stream acknowledge a response, which is that there is room for one name only.
func useful(t *testing.T, stream ads) {
	t.Helper()
	req := &discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Endpoint), ResourceNamesSubscribe: []string{"a", "b"}}
	if err := stream.Send(req); err != nil {
		t.Fatal(err)
	}
	r, err := stream.Recv()
	if err == nil {
		err = stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: req.TypeUrl, ResponseNonce: r.GetNonce()})
	}
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// TestWarningsDoNotHideEachOther: each reason has a line of its own, and they say how often they were not said.
func TestWarningsDoNotHideEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		log := slog.New(slog.NewTextHandler(&out, nil))
		var s seldom
		for range 3 {
			s.warn(log, "a", "first")
			s.warn(log, "b", "second")
		}
		time.Sleep(warnEvery)
		s.warn(log, "b", "third")
		if got := out.String(); strings.Count(got, "\n") != 3 || !strings.Contains(got, "msg=first more_since_last=0") || !strings.Contains(got, "msg=third more_since_last=2") {
			t.Error(got)
		}
	})
}

// TestWaitsAreBounded: of very many who have to wait the first are forgotten, and all are in time.
func TestWaitsAreBounded(t *testing.T) {
	var w waits
	now := time.Now()
	for i := range maxWaits + 10 {
		w.add(fmt.Sprint(i), now)
	}
	if len(w.order) != maxWaits || len(w.until) != maxWaits || w.has("9", now) || !w.has("10", now) {
		t.Errorf("%d wait, %d in order", len(w.until), len(w.order))
	}
	w.add("20", now.Add(time.Second))
	if w.has("21", now.Add(floodWait)) || !w.has("20", now.Add(floodWait)) || w.has("20", now.Add(floodWait+time.Second)) {
		t.Error("they do not wait for as long as they have to")
	}
	if len(w.order)+len(w.until) != 0 {
		t.Errorf("%d and %d are remembered", len(w.order), len(w.until))
	}
}
