package main

import (
	"context"
	"strconv"
	"sync"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	gcp "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/log"
	gcpserver "github.com/envoyproxy/go-control-plane/pkg/server/v3"

	"github.com/xds-relay/xds-relay/bench/internal/control"
	"github.com/xds-relay/xds-relay/bench/internal/world"
)

// cache is a cache of go-control-plane.
type cache interface {
	control.Source
	server() gcpserver.Server
}

// resource is a resource of a world.
func resource(w *world.World, k world.Kind, i, step int) types.Resource {
	return w.Message(k, i, step)
}

func resources(w *world.World, k world.Kind) map[string]types.Resource {
	all := make(map[string]types.Resource, w.Count(k))
	for i := range w.Count(k) {
		all[w.Name(k, i)] = resource(w, k, i, 0)
	}
	return all
}

// linear is one LinearCache a type. The server asks the one of the clusters or, if the
// world has none, that of the assignments; muxed, a MuxCache finds the right one.
type linear struct {
	muxed bool

	mu     sync.Mutex
	world  *world.World
	caches map[world.Kind]*gcp.LinearCache
	serves gcp.Cache // one of them, or a MuxCache over them
}

func (l *linear) server() gcpserver.Server {
	return gcpserver.NewServer(context.Background(), chosen{l}, nil)
}

// World implements control.Source.
func (l *linear) World(spec world.Spec) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.world, l.caches = world.New(spec), make(map[world.Kind]*gcp.LinearCache)
	mux := &gcp.MuxCache{
		Classify:      func(r *gcp.Request) string { return r.GetTypeUrl() },
		ClassifyDelta: func(r *gcp.DeltaRequest) string { return r.GetTypeUrl() },
		Caches:        make(map[string]gcp.Cache),
	}
	for _, k := range world.Kinds {
		l.caches[k] = gcp.NewLinearCache(k.TypeURL(), gcp.WithInitialResources(resources(l.world, k)))
		mux.Caches[k.TypeURL()] = l.caches[k]
	}
	switch {
	case l.muxed:
		l.serves = mux
	case spec.Clusters == 0:
		l.serves = l.caches[world.Endpoint]
	default:
		l.serves = l.caches[world.Cluster]
	}
	return nil
}

// Step implements control.Source.
func (l *linear) Step(n int) error {
	l.mu.Lock()
	w, caches := l.world, l.caches
	l.mu.Unlock()
	if w == nil {
		return errNoWorld
	}
	i := w.Changed(n)
	return caches[w.Changes].UpdateResource(w.Name(w.Changes, i), resource(w, w.Changes, i, n))
}

// Stats implements control.Source: nobody counts here.
func (l *linear) Stats() (control.Stats, error) { return control.Stats{}, nil }

// current is the cache of the world that is served now.
func (l *linear) current() gcp.Cache {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.serves
}

// chosen is the cache of a linear, whichever it is when it is asked.
type chosen struct{ *linear }

// CreateWatch implements gcp.Cache.
func (c chosen) CreateWatch(r *gcp.Request, s gcp.Subscription, out chan gcp.Response) (func(), error) {
	return c.current().CreateWatch(r, s, out)
}

// CreateDeltaWatch implements gcp.Cache.
func (c chosen) CreateDeltaWatch(r *gcp.DeltaRequest, s gcp.Subscription, out chan gcp.DeltaResponse) (func(), error) {
	return c.current().CreateDeltaWatch(r, s, out)
}

// Fetch implements gcp.Cache.
func (c chosen) Fetch(ctx context.Context, r *discovery.DiscoveryRequest) (gcp.Response, error) {
	return c.current().Fetch(ctx, r)
}

// snapshots is a SnapshotCache in which a snapshot is set for each node: the same one,
// since nodes differ in nothing, so that the versions in it are computed once. Steps that
// come while it is being set are taken together by the next one, as control planes do it.
type snapshots struct {
	cache gcp.SnapshotCache
	wake  chan struct{}

	mu      sync.Mutex
	world   *world.World
	step    int
	content map[string][]types.Resource // by type
	latest  *gcp.Snapshot               // nil: the content has changed since it was made
	nodes   map[string]bool
}

func newSnapshots() *snapshots {
	s := &snapshots{
		cache: gcp.NewSnapshotCache(false, gcp.IDHash{}, log.NewDefaultLogger()),
		wake:  make(chan struct{}, 1), nodes: make(map[string]bool),
	}
	go func() {
		for range s.wake {
			s.spread()
		}
	}()
	return s
}

func (s *snapshots) server() gcpserver.Server {
	return gcpserver.NewServer(context.Background(), s.cache, gcpserver.CallbackFuncs{
		StreamDeltaRequestFunc: func(_ int64, r *discovery.DeltaDiscoveryRequest) error { return s.greet(r.GetNode().GetId()) },
		StreamRequestFunc:      func(_ int64, r *discovery.DiscoveryRequest) error { return s.greet(r.GetNode().GetId()) },
		DeltaStreamClosedFunc:  func(_ int64, n *core.Node) { s.leave(n) },
		StreamClosedFunc:       func(_ int64, n *core.Node) { s.leave(n) },
	})
}

// greet gives a node its first snapshot.
func (s *snapshots) greet(node string) error {
	s.mu.Lock()
	if node == "" || s.nodes[node] || s.world == nil {
		s.mu.Unlock()
		return nil
	}
	s.nodes[node] = true
	snapshot, err := s.snapshot()
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.cache.SetSnapshot(context.Background(), node, snapshot)
}

// snapshot is a snapshot of what there is now.
func (s *snapshots) snapshot() (_ *gcp.Snapshot, err error) {
	if s.latest == nil {
		s.latest, err = gcp.NewSnapshot(strconv.Itoa(s.step), s.content)
	}
	return s.latest, err
}

// leave forgets a node.
func (s *snapshots) leave(n *core.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, n.GetId())
	s.cache.ClearSnapshot(n.GetId())
}

// spread sets what there is now for every node.
func (s *snapshots) spread() {
	s.mu.Lock()
	nodes := make([]string, 0, len(s.nodes))
	for n := range s.nodes {
		nodes = append(nodes, n)
	}
	snapshot, err := s.snapshot()
	s.mu.Unlock()
	if err != nil {
		return // there are no resources of the kinds that it knows
	}
	for _, n := range nodes {
		// An error means that a client has gone.
		_ = s.cache.SetSnapshot(context.Background(), n, snapshot)
	}
}

// World implements control.Source.
func (s *snapshots) World(spec world.Spec) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := range s.nodes {
		s.cache.ClearSnapshot(n)
	}
	s.world, s.step, s.latest, s.nodes = world.New(spec), 0, nil, make(map[string]bool)
	s.content = make(map[string][]types.Resource)
	for _, k := range world.Kinds {
		for i := range s.world.Count(k) {
			s.content[k.TypeURL()] = append(s.content[k.TypeURL()], resource(s.world, k, i, 0))
		}
	}
	return nil
}

// Step implements control.Source.
func (s *snapshots) Step(n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.world == nil {
		return errNoWorld
	}
	k, i := s.world.Changes, s.world.Changed(n)
	s.step, s.latest = n, nil
	s.content[k.TypeURL()][i] = resource(s.world, k, i, n)
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

// Stats implements control.Source: nobody counts here.
func (s *snapshots) Stats() (control.Stats, error) { return control.Stats{}, nil }
