package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"

	"github.com/xds-relay/xds-relay/cache"
)

// controlPlane is an xDS server that speaks Delta on one stream for all types. It can
// be stopped and started again with the resources that it had. Only the story's
// goroutine starts and stops it. A library's server would do, too, but a relay is
// installed to run for months, and the demo for seconds: what only the demo needs is
// not linked.
type controlPlane struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer

	addr   string
	served bool // at addr, before

	// The server that runs, if one does.
	grpc   *grpc.Server
	serves sync.WaitGroup
	up     atomic.Bool

	// What it has sent.
	responses atomic.Int64
	bytes     atomic.Int64

	mu        sync.Mutex
	revisions map[key]int
	streams   map[*planeStream]bool
}

// key names a resource.
type key struct {
	typ  cache.TypeURL
	name string
}

func newControlPlane() *controlPlane {
	cp := &controlPlane{revisions: make(map[key]int), streams: make(map[*planeStream]bool)}
	for _, t := range types {
		for _, name := range services {
			cp.revisions[key{t, name}] = 1
		}
	}
	return cp
}

// Change puts the next revision of a resource in place, and tells whoever listens.
func (cp *controlPlane) Change(k key) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.revisions[k]++
	for s := range cp.streams {
		select {
		case s.wake <- struct{}{}:
		default: // it will see this change with the one before
		}
	}
}

// Revision is the one that a resource has now.
func (cp *controlPlane) Revision(k key) int {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return cp.revisions[k]
}

// revisionsOf are the resources of a type, with the revisions that they have now.
func (cp *controlPlane) revisionsOf(t cache.TypeURL) map[string]int {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	all := make(map[string]int)
	for k, revision := range cp.revisions {
		if k.typ == t {
			all[k.name] = revision
		}
	}
	return all
}

func (cp *controlPlane) join(s *planeStream) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.streams[s] = true
}

func (cp *controlPlane) leave(s *planeStream) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	delete(cp.streams, s)
}

// Streams is how many are open.
func (cp *controlPlane) Streams() int {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return len(cp.streams)
}

// Start listens, on the same address as the time before, and serves.
func (cp *controlPlane) Start(ctx context.Context) error {
	l, err := cp.listen(ctx)
	if err != nil {
		return fmt.Errorf("demo: control plane: %w", err)
	}
	cp.addr, cp.served = l.Addr().String(), true
	// Stop waits for the handlers, so that a stream is never counted twice.
	cp.grpc = grpc.NewServer(grpc.WaitForHandlers(true))
	discovery.RegisterAggregatedDiscoveryServiceServer(cp.grpc, cp)
	s := cp.grpc
	// Serve fails only when its listener does, and then the relay cannot connect,
	// which the view shows.
	cp.serves.Go(func() { _ = s.Serve(countedListener{l, &cp.bytes}) })
	cp.up.Store(true)
	return nil
}

// The address may be taken for a moment when the control plane returns to it: a
// dial to a free port of the machine's own can be given that very port to dial
// from, and then meets itself.
const (
	listenRetry = 50 * time.Millisecond
	listenLimit = 5 * time.Second
)

func (cp *controlPlane) listen(ctx context.Context) (net.Listener, error) {
	addr := cp.addr
	if addr == "" {
		addr = loopback
	}
	limit, cancel := context.WithTimeout(ctx, listenLimit)
	defer cancel()
	for {
		l, err := net.Listen("tcp", addr)
		if err == nil || !cp.served || !errors.Is(err, syscall.EADDRINUSE) || !wait(limit, listenRetry) {
			return l, err
		}
	}
}

// Stop closes the listener and all connections. It may be called twice.
func (cp *controlPlane) Stop() {
	if cp.grpc == nil {
		return
	}
	cp.up.Store(false)
	cp.grpc.Stop()
	cp.serves.Wait()
	cp.grpc = nil
}

// loopback is an address that the system chooses.
const loopback = "127.0.0.1:0"

// countedListener counts the bytes that its connections send.
type countedListener struct {
	net.Listener
	sent *atomic.Int64
}

func (l countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &countedConn{c, l.sent}, nil
}

type countedConn struct {
	net.Conn
	sent *atomic.Int64
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.sent.Add(int64(n))
	return n, err
}

// wait lets a time pass; false if ctx ended first.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
