package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	gcp "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	gcpserver "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/loopback"
)

// controlPlane is a go-control-plane server on a loopback address of its own. It
// can be stopped, which closes its listener and every connection, and started
// again with the cache that it had.
type controlPlane struct {
	t     testing.TB
	addr  string
	cache gcp.Cache
	opts  []grpc.ServerOption
	// noDelta: as an old one, it does not implement Delta. Set before Start.
	noDelta bool

	// The server that runs, if one does.
	grpc   *grpc.Server
	cancel context.CancelFunc
	serves sync.WaitGroup

	// What it has seen.
	mu      sync.Mutex
	epoch   int64 // starts; stream ids begin again with each
	streams map[streamID]*upstreamStream
	order   []*upstreamStream
	most    int // streams open at once
}

type streamID struct{ epoch, id int64 }

// upstreamStream is one stream that the control plane has served.
type upstreamStream struct {
	role   string // what the relay says it is for
	method string // type URL of a per-type method; "" is ADS
	sotw   bool
	open   bool
	node   *core.Node
	// requests counts the requests of a type.
	requests map[cache.TypeURL]int
	// subscribed counts how often each name was subscribed; "" stands for an
	// empty first request.
	subscribed map[cache.TypeURL]map[string]int
	removed    map[cache.TypeURL]map[string]int
	versions   map[cache.TypeURL]map[string]string // initial_resource_versions
	nacks      []string
}

// startControlPlane serves a cache until the test ends.
func startControlPlane(t testing.TB, c gcp.Cache, opts ...grpc.ServerOption) *controlPlane {
	t.Helper()
	cp := newControlPlane(t, c, opts...)
	cp.Start()
	return cp
}

// newControlPlane is one that does not serve yet.
func newControlPlane(t testing.TB, c gcp.Cache, opts ...grpc.ServerOption) *controlPlane {
	t.Helper()
	cp := &controlPlane{t: t, addr: loopback.Reserve(t), cache: c, opts: opts, streams: make(map[streamID]*upstreamStream)}
	t.Cleanup(cp.Stop)
	return cp
}

// Start listens and serves. The caller has stopped it before.
func (cp *controlPlane) Start() {
	cp.t.Helper()
	l, err := net.Listen("tcp", cp.addr)
	if err != nil {
		cp.t.Fatalf("control plane: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cp.mu.Lock()
	cp.epoch++
	epoch := cp.epoch
	cp.mu.Unlock()
	// Thousands of resources in one message are nothing unusual here.
	s := grpc.NewServer(append([]grpc.ServerOption{grpc.MaxRecvMsgSize(64 << 20)}, cp.opts...)...)
	var service discovery.AggregatedDiscoveryServiceServer = gcpserver.NewServer(ctx, cp.cache, cp.callbacks(epoch))
	if cp.noDelta {
		service = sotwOnly{AggregatedDiscoveryServiceServer: service}
	}
	discovery.RegisterAggregatedDiscoveryServiceServer(s, service)
	cp.grpc, cp.cancel = s, cancel
	cp.serves.Go(func() {
		if err := s.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			cp.t.Errorf("control plane: %v", err)
		}
	})
}

// sotwOnly is a service without Delta.
type sotwOnly struct {
	discovery.AggregatedDiscoveryServiceServer
	discovery.UnimplementedAggregatedDiscoveryServiceServer
}

func (s sotwOnly) StreamAggregatedResources(stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return s.AggregatedDiscoveryServiceServer.StreamAggregatedResources(stream)
}

func (s sotwOnly) DeltaAggregatedResources(stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return s.UnimplementedAggregatedDiscoveryServiceServer.DeltaAggregatedResources(stream)
}

// Stop closes the listener and all connections. It may be called twice.
func (cp *controlPlane) Stop() {
	if cp.grpc == nil {
		return
	}
	cp.grpc.Stop()
	cp.cancel()
	cp.serves.Wait()
	cp.grpc = nil
}

func (cp *controlPlane) callbacks(epoch int64) gcpserver.Callbacks {
	opened := func(sotw bool) func(context.Context, int64, string) error {
		return func(ctx context.Context, id int64, typeURL string) error {
			s := &upstreamStream{
				method: typeURL, sotw: sotw, open: true,
				requests:   make(map[cache.TypeURL]int),
				subscribed: make(map[cache.TypeURL]map[string]int),
				removed:    make(map[cache.TypeURL]map[string]int),
				versions:   make(map[cache.TypeURL]map[string]string),
			}
			if md, ok := metadata.FromIncomingContext(ctx); ok {
				s.role = strings.Join(md.Get("x-xds-relay-stream"), ",")
			}
			cp.mu.Lock()
			defer cp.mu.Unlock()
			cp.streams[streamID{epoch, id}] = s
			cp.order = append(cp.order, s)
			cp.most = max(cp.most, cp.openNow())
			return nil
		}
	}
	closed := func(id int64, _ *core.Node) {
		cp.mu.Lock()
		defer cp.mu.Unlock()
		cp.streams[streamID{epoch, id}].open = false
	}
	return gcpserver.CallbackFuncs{
		DeltaStreamOpenFunc:   opened(false),
		StreamOpenFunc:        opened(true),
		DeltaStreamClosedFunc: closed,
		StreamClosedFunc:      closed,
		StreamDeltaRequestFunc: func(id int64, r *discovery.DeltaDiscoveryRequest) error {
			cp.mu.Lock()
			defer cp.mu.Unlock()
			cp.streams[streamID{epoch, id}].take(r)
			return nil
		},
	}
}

func (s *upstreamStream) take(r *discovery.DeltaDiscoveryRequest) {
	t := cache.TypeURL(r.GetTypeUrl())
	if s.node == nil {
		s.node = r.GetNode()
	}
	count := func(m map[cache.TypeURL]map[string]int, names ...string) {
		if m[t] == nil {
			m[t] = make(map[string]int)
		}
		for _, name := range names {
			m[t][name]++
		}
	}
	if s.requests[t] == 0 {
		s.versions[t] = r.GetInitialResourceVersions()
		if len(r.GetResourceNamesSubscribe()) == 0 {
			count(s.subscribed, "")
		}
	}
	s.requests[t]++
	count(s.subscribed, r.GetResourceNamesSubscribe()...)
	count(s.removed, r.GetResourceNamesUnsubscribe()...)
	if r.GetErrorDetail() != nil {
		s.nacks = append(s.nacks, r.GetErrorDetail().GetMessage())
	}
}

// openNow counts the open streams; its caller holds the lock.
func (cp *controlPlane) openNow() (n int) {
	for _, s := range cp.order {
		if s.open {
			n++
		}
	}
	return n
}

// Open is the number of streams that are open.
func (cp *controlPlane) Open() int {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return cp.openNow()
}

// Most is the largest number of streams that were ever open at once.
func (cp *controlPlane) Most() int {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return cp.most
}

// Opened is the number of streams there have been.
func (cp *controlPlane) Opened() int {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return len(cp.order)
}

// see looks at the streams there have been, oldest first.
func (cp *controlPlane) see(look func([]*upstreamStream)) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	look(cp.order)
}

// deltaADSOnly complains of streams that are not Delta ADS (UP-1), and of NACKs.
func (cp *controlPlane) deltaADSOnly() (err error) {
	cp.see(func(streams []*upstreamStream) {
		for _, s := range streams {
			if s.sotw || s.method != "" {
				err = fmt.Errorf("a stream upstream is not Delta ADS: sotw=%v type=%q", s.sotw, s.method)
			}
			if len(s.nacks) > 0 {
				err = fmt.Errorf("the relay NACKed: %s", strings.Join(s.nacks, "; "))
			}
		}
	})
	return err
}

// subscribedOnce complains if a name of a type is subscribed more than once over
// all open streams, by one lane; the two lanes of a type are told apart by the
// wildcard. A name that is absent is given up and asked for again (UP-19).
func (cp *controlPlane) subscribedOnce(t cache.TypeURL, names int) (err error) {
	total := make(map[string]int)
	cp.see(func(streams []*upstreamStream) {
		for _, s := range streams {
			if s.open {
				for name, n := range s.subscribed[t] {
					total[name] += n - s.removed[t][name]
				}
			}
		}
	})
	for _, name := range slices.Sorted(maps.Keys(total)) {
		if total[name] > 1 {
			return fmt.Errorf("%s %q was subscribed %d times upstream", t.Short(), name, total[name])
		}
	}
	return is(t.Short()+" names subscribed upstream", len(total), names)
}

// subscribes complains unless a name is, or was to the end of a stream, subscribed.
func (cp *controlPlane) subscribes(t cache.TypeURL, name string) error {
	found := false
	cp.see(func(streams []*upstreamStream) {
		for _, s := range streams {
			found = found || s.subscribed[t][name] > s.removed[t][name]
		}
	})
	if !found {
		return fmt.Errorf("%s %q is not subscribed upstream", t.Short(), name)
	}
	return nil
}

// openedAs is the number of streams of a role there have been.
func (cp *controlPlane) openedAs(role string) (n int) {
	cp.see(func(streams []*upstreamStream) {
		for _, s := range streams {
			if s.role == role {
				n++
			}
		}
	})
	return n
}
