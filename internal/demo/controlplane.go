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

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	gcp "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	gcpserver "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"

	"github.com/xds-relay/xds-relay/cache"
)

// controlPlane is a go-control-plane server with one LinearCache for each type.
// It can be stopped and started again with the resources that it had. Only the
// story's goroutine starts and stops it.
type controlPlane struct {
	caches map[cache.TypeURL]*gcp.LinearCache
	addr   string
	served bool // at addr, before

	// The server that runs, if one does.
	grpc   *grpc.Server
	cancel context.CancelFunc
	serves sync.WaitGroup
	up     atomic.Bool

	// What it has seen and sent.
	streams   atomic.Int64
	responses atomic.Int64
	bytes     atomic.Int64

	mu        sync.Mutex
	revisions map[key]int
}

// key names a resource.
type key struct {
	typ  cache.TypeURL
	name string
}

func newControlPlane() (*controlPlane, error) {
	cp := &controlPlane{caches: make(map[cache.TypeURL]*gcp.LinearCache), revisions: make(map[key]int)}
	for _, t := range types {
		cp.caches[t] = gcp.NewLinearCache(string(t))
		for _, name := range services {
			if err := cp.caches[t].UpdateResource(name, resource(t, name, 1)); err != nil {
				return nil, fmt.Errorf("demo: control plane: %w", err)
			}
			cp.revisions[key{t, name}] = 1
		}
	}
	return cp, nil
}

// Next is the revision that the next change of a resource will have.
func (cp *controlPlane) Next(k key) int {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.revisions[k]++
	return cp.revisions[k]
}

// Set puts a revision of a resource in place, and sends it to whoever listens.
func (cp *controlPlane) Set(k key, revision int) error {
	return cp.caches[k.typ].UpdateResource(k.name, resource(k.typ, k.name, revision))
}

// Revision is the one that a resource has now.
func (cp *controlPlane) Revision(k key) int {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return cp.revisions[k]
}

// Start listens, on the same address as the time before, and serves.
func (cp *controlPlane) Start(ctx context.Context) error {
	l, err := cp.listen(ctx)
	if err != nil {
		return fmt.Errorf("demo: control plane: %w", err)
	}
	cp.addr, cp.served = l.Addr().String(), true
	serving, cancel := context.WithCancel(context.Background())
	mux := &gcp.MuxCache{
		Classify:      func(r *gcp.Request) string { return r.GetTypeUrl() },
		ClassifyDelta: func(r *gcp.DeltaRequest) string { return r.GetTypeUrl() },
		Caches:        make(map[string]gcp.Cache),
	}
	for t, c := range cp.caches {
		mux.Caches[string(t)] = c
	}
	// Stop waits for the handlers, so that a stream is never counted twice.
	s := grpc.NewServer(grpc.WaitForHandlers(true))
	discovery.RegisterAggregatedDiscoveryServiceServer(s, gcpserver.NewServer(serving, mux, gcpserver.CallbackFuncs{
		DeltaStreamOpenFunc:   func(context.Context, int64, string) error { cp.streams.Add(1); return nil },
		DeltaStreamClosedFunc: func(int64, *core.Node) { cp.streams.Add(-1) },
		StreamDeltaResponseFunc: func(int64, *discovery.DeltaDiscoveryRequest, *discovery.DeltaDiscoveryResponse) {
			cp.responses.Add(1)
		},
	}))
	cp.grpc, cp.cancel = s, cancel
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
	// Streams end on the server's side first; waiting handlers see it at once.
	cp.cancel()
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
