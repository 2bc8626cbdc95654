package envoy

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	gcp "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	gcpserver "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/loopback"
)

// snapshots is a control plane of go-control-plane's: its snapshot cache, with one snapshot
// for every node. It can be stopped and started again.
type snapshots struct {
	t     testing.TB
	addr  string
	cache gcp.SnapshotCache
	// offers registers the services that it has.
	offers func(*grpc.Server, gcpserver.Server)
	stop   func() // nil: it does not run

	mu    sync.Mutex
	world world
	n     int                    // snapshots so far
	asked map[cache.TypeURL]bool // of it, ever
	opens int                    // streams so far
	open  int                    // streams now
}

// everyone is the key of the snapshot, whatever the node.
type everyone struct{}

func (everyone) ID(*core.Node) string { return "everyone" }

// ads offers the aggregated service and no other.
func ads(s *grpc.Server, all gcpserver.Server) {
	discovery.RegisterAggregatedDiscoveryServiceServer(s, all)
}

// startSnapshots serves a world by ADS until the test ends.
func startSnapshots(t testing.TB, has world) *snapshots {
	t.Helper()
	p := newSnapshots(t, has, true, ads)
	p.Start()
	return p
}

// newSnapshots makes a control plane that is not started yet. whole: a client has to ask for all names at once.
func newSnapshots(t testing.TB, has world, whole bool, offers func(*grpc.Server, gcpserver.Server)) *snapshots {
	p := &snapshots{t: t, addr: loopback.Reserve(t), cache: gcp.NewSnapshotCache(whole, everyone{}, nil), offers: offers, world: has, asked: make(map[cache.TypeURL]bool)}
	p.Change(func(world) {})
	t.Cleanup(p.Stop)
	return p
}

// Start listens and serves.
func (p *snapshots) Start() {
	p.t.Helper()
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := grpc.NewServer()
	p.offers(s, gcpserver.NewServer(ctx, p.cache, p.callbacks()))
	var serves sync.WaitGroup
	serves.Go(func() {
		if err := s.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			p.t.Errorf("control plane: %v", err)
		}
	})
	p.stop = func() {
		cancel()
		s.Stop()
		serves.Wait()
	}
}

// Stop closes the listener and all connections. It may be called twice.
func (p *snapshots) Stop() {
	if p.stop != nil {
		p.stop()
		p.stop = nil
	}
}

// callbacks note what is asked, and the streams.
func (p *snapshots) callbacks() gcpserver.Callbacks {
	counts := func(opens, open int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.opens, p.open = p.opens+opens, p.open+open
	}
	asks := func(url string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.asked[cache.TypeURL(url)] = true
	}
	return gcpserver.CallbackFuncs{
		StreamOpenFunc:         func(context.Context, int64, string) error { counts(1, 1); return nil },
		DeltaStreamOpenFunc:    func(context.Context, int64, string) error { counts(1, 1); return nil },
		StreamClosedFunc:       func(int64, *core.Node) { counts(0, -1) },
		DeltaStreamClosedFunc:  func(int64, *core.Node) { counts(0, -1) },
		StreamRequestFunc:      func(_ int64, r *discovery.DiscoveryRequest) error { asks(r.GetTypeUrl()); return nil },
		StreamDeltaRequestFunc: func(_ int64, r *discovery.DeltaDiscoveryRequest) error { asks(r.GetTypeUrl()); return nil },
	}
}

// Change changes the world and makes it the next snapshot.
func (p *snapshots) Change(change func(world)) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p.world)
	p.n++
	resources := make(map[string][]types.Resource)
	for _, u := range []cache.TypeURL{cache.Cluster, cache.Endpoint, cache.Listener, cache.ScopedRoute, cache.Route} {
		resources[string(u)] = nil
		for name, r := range p.world[u] {
			m, err := r.body.UnmarshalNew()
			if err != nil {
				p.t.Fatalf("%s %s: %v", u.Short(), name, err)
			}
			resources[string(u)] = append(resources[string(u)], m)
		}
	}
	s, err := gcp.NewSnapshot(strconv.Itoa(p.n), resources)
	if err == nil {
		err = p.cache.SetSnapshot(context.Background(), everyone{}.ID(nil), s)
	}
	if err != nil {
		p.t.Fatalf("snapshot %d: %v", p.n, err)
	}
}
