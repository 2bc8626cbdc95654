package upstream

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/internal/service"
	"github.com/xds-relay/xds-relay/upstream/session"
)

// peerServer is a control plane that says nothing of itself.
type peerServer struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	healthpb.UnimplementedHealthServer

	*grpc.Server
	address string
	// health answers checks; nil: there is no such service.
	health func(ctx context.Context) error
	// answer: it answers every name that is subscribed to; otherwise it is silent, but
	// for say.
	answer  bool
	mu      sync.Mutex
	streams map[chan string]bool
	begun   atomic.Int64 // streams
	checked atomic.Int64 // checks
}

// serve starts a control plane on a listener. health may be nil.
func serve(t *testing.T, l net.Listener, health func(context.Context) error, o ...grpc.ServerOption) *peerServer {
	p := &peerServer{Server: grpc.NewServer(o...), address: l.Addr().String(), health: health, streams: make(map[chan string]bool)}
	discovery.RegisterAggregatedDiscoveryServiceServer(p, p)
	if health != nil {
		healthpb.RegisterHealthServer(p, p)
	}
	var done sync.WaitGroup
	done.Go(func() {
		if err := p.Serve(l); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { p.Stop(); done.Wait() })
	return p
}

func loopback(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (p *peerServer) DeltaAggregatedResources(s discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	say := make(chan string, 10)
	p.mu.Lock()
	p.streams[say] = true
	p.mu.Unlock()
	p.begun.Add(1)
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.streams, say)
	}()
	if p.answer {
		return p.answers(s)
	}
	for {
		select {
		case <-s.Context().Done():
			return nil
		case nonce := <-say:
			if err := s.Send(&discovery.DeltaDiscoveryResponse{Nonce: nonce}); err != nil {
				return err
			}
		}
	}
}

func (p *peerServer) Check(ctx context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	p.checked.Add(1)
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_NOT_SERVING}, p.health(ctx)
}

// say sends a response on every stream.
func (p *peerServer) say(nonce string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.streams {
		s <- nonce
	}
}

func (p *peerServer) open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.streams)
}

// reach returns a Conn to a control plane, which is closed with the test.
func reach(t *testing.T, e Endpoint) *Conn {
	if e.Credentials == nil {
		e.Credentials = insecure.NewCredentials()
	}
	e.MaxReceive = 1 << 20
	c := NewConn(e)
	t.Cleanup(c.Close)
	return c
}

var ads, _ = service.Of("")

// open opens a stream for a group, which is read until it ends.
func open(t *testing.T, c *Conn, group any) (adsStream, <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s, err := c.open(ctx, group, ads, session.Main, false, nil, nil)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer s.leave()
		for {
			if _, err := s.receive(); err != nil {
				ended <- err
				return
			}
		}
	})
	t.Cleanup(func() { cancel(); reading.Wait() })
	return s, ended
}

// ask checks, and returns the result.
func ask(t *testing.T, c *Conn, s adsStream, timeout time.Duration) session.Check {
	t.Helper()
	result := make(chan session.Check, 1)
	c.check(s, timeout, func(k session.Check) { result <- k })
	return wait(t, result)
}

// wait takes what comes from a channel, if it does.
func wait[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(time.Minute):
		t.Fatal("nothing came")
	}
	return v
}

// lost waits for a stream to end with its connection.
func lost(t *testing.T, ended <-chan error) {
	t.Helper()
	if err := wait(t, ended); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
}

// until waits for something to be so.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("it is not so: " + what)
		}
	}
}

// freezer makes connections that can stop to move anything, as those to a host that is
// cut off do.
type freezer struct {
	mu    sync.Mutex
	conns []*freezable
}

type freezable struct {
	net.Conn
	frozen atomic.Bool
	closed chan struct{}
	once   sync.Once
}

func (f *freezer) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := dialTCP(ctx, address)
	if err != nil {
		return nil, err
	}
	return f.wrap(conn), nil
}

func (f *freezer) wrap(conn net.Conn) net.Conn {
	c := &freezable{Conn: conn, closed: make(chan struct{})}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns = append(f.conns, c)
	return c
}

func (f *freezer) dialled() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.conns)
}

// freeze stops what there is.
func (f *freezer) freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		c.frozen.Store(true)
	}
}

func (c *freezable) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.frozen.Load() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *freezable) Write(b []byte) (int, error) {
	if c.frozen.Load() {
		return len(b), nil // until the buffers are full
	}
	return c.Conn.Write(b)
}

func (c *freezable) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
