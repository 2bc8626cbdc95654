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
)

// snapshots is a control plane of go-control-plane's: its snapshot cache for ADS, with one
// snapshot for every node.
type snapshots struct {
	t     testing.TB
	addr  string
	cache gcp.SnapshotCache

	mu    sync.Mutex
	world world
	n     int // snapshots so far
}

// everyone is the key of the snapshot, whatever the node.
type everyone struct{}

func (everyone) ID(*core.Node) string { return "everyone" }

// startSnapshots serves a world until the test ends.
func startSnapshots(t testing.TB, has world) *snapshots {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &snapshots{t: t, addr: l.Addr().String(), cache: gcp.NewSnapshotCache(true, everyone{}, nil), world: has}
	p.Change(func(world) {})
	ctx, cancel := context.WithCancel(context.Background())
	s := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(s, gcpserver.NewServer(ctx, p.cache, nil))
	var serves sync.WaitGroup
	serves.Go(func() {
		if err := s.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Errorf("control plane: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		s.Stop()
		serves.Wait()
	})
	return p
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
