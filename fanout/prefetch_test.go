package fanout

import (
	"slices"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
)

var (
	allClusters = Lane{cache.Cluster, true}
	assignments = Lane{cache.Endpoint, false}
)

// clusters is a response with Clusters of these names, whose endpoints come from the same control plane.
func clusters(t *testing.T, comment string, names ...string) *cache.Update {
	t.Helper()
	ads := &core.ConfigSource{ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}}}
	u := &cache.Update{At: epoch}
	for _, name := range names {
		body, err := anypb.New(&cluster.Cluster{
			Name: name, AltStatName: comment, ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_EDS},
			EdsClusterConfig: &cluster.Cluster_EdsClusterConfig{EdsConfig: ads},
		})
		if err != nil {
			t.Fatal(err)
		}
		u.Set = append(u.Set, cache.Received{Resource: cache.NewResource(cache.Cluster, &discovery.Resource{Name: name, Resource: body}, cache.Fingerprint{})})
	}
	return u
}

// hubOfClusters has a client of all Clusters.
func hubOfClusters(c Config) *Hub {
	h := NewHub(c)
	h.Subscribe(cache.Cluster, NewSubscriber(func() {})).Delta([]string{Wildcard}, nil, epoch)
	changes(h)
	return h
}

// TestPrefetch: the endpoints of Clusters linger as soon as these come, once for each reference (UP-28).
func TestPrefetch(t *testing.T) {
	h := hubOfClusters(Config{Linger: time.Minute, MaxLinger: 10})
	wanted := func(want ...string) {
		t.Helper()
		changes(h)
		if names := h.On(assignments).Names(); !slices.Equal(slices.Sorted(slices.Values(names)), want) {
			t.Errorf("%q are asked for, want %q", names, want)
		}
	}
	if h.Apply(allClusters, clusters(t, "", "a")); len(h.On(assignments).Names()) > 0 {
		t.Error("names are asked for though nothing is to be prefetched")
	}
	h.Apply(allClusters, clusters(t, "", "a", "b"), cache.Endpoint)
	wanted("b") // a is as it was
	h.Apply(allClusters, clusters(t, "other", "a", "b"), cache.Route, cache.Endpoint)
	wanted("b") // they mention what they did
	s := h.Subscribe(cache.Endpoint, NewSubscriber(func() {}))
	s.Delta([]string{"b"}, nil, epoch)
	h.Expire(epoch.Add(2 * time.Minute))
	wanted("b")
	h.Apply(allClusters, clusters(t, "", "c"), cache.Endpoint)
	h.On(assignments).Asked([]string{"b", "c"})
	h.Apply(assignments, &cache.Update{At: epoch, Removed: []string{"c"}})
	wanted("b", "c") // its client is told so at once
	h.Apply(allClusters, clusters(t, "", "d"), cache.Endpoint)
	h.On(assignments).Asked([]string{"d"})
	if a := h.Apply(assignments, &cache.Update{At: epoch, Missing: []string{"b", "d"}}); a.Silent != 1 || a.First != "b" {
		t.Errorf("%d names are reported as missing, first %q; want the one that a client asks for", a.Silent, a.First)
	}
	h.Expire(epoch.Add(2 * time.Minute))
	wanted("b")
}

// TestPrefetchIsBounded: what nobody has asked for takes no room from what clients have given up, and the wildcard and
// names of a type are not both asked for because of it.
func TestPrefetchIsBounded(t *testing.T) {
	h := hubOfClusters(Config{Linger: time.Minute, MaxLinger: 2})
	s := h.Subscribe(cache.Endpoint, NewSubscriber(func() {}))
	s.Delta([]string{"given up"}, nil, epoch)
	changes(h)
	h.On(assignments).Asked([]string{"given up"})
	s.Close(epoch)
	h.Apply(allClusters, clusters(t, "", "a", "b", "c"), cache.Endpoint)
	changes(h)
	if names := h.On(assignments).Names(); len(names) != 2 || !slices.Contains(names, "given up") {
		t.Errorf("%q linger, want two, and what a client has given up", names)
	}
	h.Subscribe(cache.Listener, NewSubscriber(func() {})).Delta([]string{"l"}, nil, epoch)
	if h.Prefetch(cache.Listener, []string{Wildcard}, epoch); len(h.On(Lane{cache.Listener, true}).Names()) > 0 {
		t.Error("the wildcard is asked for where clients ask by name")
	}
	h.Subscribe(cache.Route, NewSubscriber(func() {})).Delta([]string{Wildcard}, nil, epoch)
	if h.Prefetch(cache.Route, []string{"r"}, epoch); len(h.On(Lane{cache.Route, false}).Names()) > 0 {
		t.Error("a name is asked for where clients have the wildcard")
	}
	none := hubOfClusters(Config{MaxLinger: 2})
	none.Apply(allClusters, clusters(t, "", "a"), cache.Endpoint)
	if names := none.On(assignments).Names(); len(names) > 0 {
		t.Errorf("%q are asked for though nothing lingers", names)
	}
}
