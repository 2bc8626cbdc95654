//go:build linux

package chaos

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	gcptypes "github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xds-relay/xds-relay/cache"
)

// world is what a control plane knows, as a function of a seed and a step: two
// processes that agree on the step agree on every byte. Each step sets or removes
// one resource. The clusters are what every client asks for, by wildcard; an
// endpoint assignment is asked for by name, by a few clients.
type world struct {
	Seed      uint64
	Clusters  int
	Endpoints int
	// ClusterEvery: one step in so many concerns a cluster, the others an endpoint
	// assignment; 0: none does.
	ClusterEvery int
	// Padding is how many bytes each resource has beyond what it needs.
	Padding int
	// BigEvery: one step in so many changes one endpoint assignment that is larger
	// than a client's HTTP/2 window and that clients do not ask for unless told to;
	// 0: there is none.
	BigEvery int
	// RemoveOneIn: one step in so many removes; 0: none does.
	RemoveOneIn int
	// Services are what clients ask for that take everything from xDS: each is a
	// listener, its routes, a cluster and its endpoints. No step changes them.
	Services int
	// Backend is the address of the endpoints of all services.
	Backend string
	// MassAt is a step that removes all clusters but so many at once; 0: none does.
	MassAt, Keep int
}

// key names a resource.
type key struct {
	typ  cache.TypeURL
	name string
}

func (k key) String() string { return fmt.Sprintf("%s %q", k.typ.Short(), k.name) }

// big is a resource of its own; see BigEvery.
var big = key{cache.Endpoint, "big"}

const bigPadding = 64 << 10

func clusterKey(i int) key  { return key{cache.Cluster, fmt.Sprintf("cluster-%04d", i)} }
func endpointKey(i int) key { return key{cache.Endpoint, fmt.Sprintf("endpoints-%05d", i)} }

// change is what happens to one resource.
type change struct {
	key     key
	removed bool
}

// keys are all names there can be.
func (w world) keys() []key {
	var keys []key
	for i := range w.Clusters {
		keys = append(keys, clusterKey(i))
	}
	for i := range w.Endpoints {
		keys = append(keys, endpointKey(i))
	}
	if w.BigEvery > 0 {
		keys = append(keys, big)
	}
	for i := range w.Services {
		keys = append(keys, serviceKeys(i)...)
	}
	return keys
}

// changes are what step n does; the first step is 1.
func (w world) changes(n int) (all []change) {
	if n != w.MassAt {
		k, removed := w.op(n)
		return []change{{k, removed}}
	}
	for i := w.Keep; i < w.Clusters; i++ {
		all = append(all, change{clusterKey(i), true})
	}
	return all
}

// op is what a step does that concerns one resource, as nearly all do.
func (w world) op(n int) (k key, removed bool) {
	if w.BigEvery > 0 && n%w.BigEvery == 1 {
		return big, false
	}
	r := rand.New(rand.NewPCG(w.Seed, uint64(n)))
	removed = w.RemoveOneIn > 0 && r.IntN(w.RemoveOneIn) == 0
	if w.ClusterEvery > 0 && n%w.ClusterEvery == 0 {
		return clusterKey(r.IntN(w.Clusters)), removed
	}
	return endpointKey(r.IntN(w.Endpoints)), removed
}

// state is the step that touched a resource last, and whether it removed it.
type state struct {
	step int
	gone bool
}

// at is the world after so many steps. Everything exists from step 0.
func (w world) at(step int) map[key]state {
	all := make(map[key]state)
	for _, k := range w.keys() {
		all[k] = state{}
	}
	for n := 1; n <= step; n++ {
		for _, c := range w.changes(n) {
			all[c.key] = state{n, c.removed}
		}
	}
	return all
}

// resource is the body that a step gives to a name.
func (w world) resource(k key, step int) gcptypes.Resource {
	if r := w.service(k); r != nil {
		return r
	}
	padding := w.Padding
	if k == big {
		padding = bigPadding
	}
	text := strings.Repeat("x", padding)
	if k.typ == cache.Cluster {
		// No EDS: a cluster that uses endpoints would have them sent again with each
		// change of its own (ORDER-4).
		return &cluster.Cluster{
			Name: k.name, AltStatName: text,
			ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_STATIC},
			ConnectTimeout:       durationpb.New(time.Second + time.Duration(step)),
		}
	}
	return &endpoint.ClusterLoadAssignment{
		ClusterName: k.name,
		Endpoints:   []*endpoint.LocalityLbEndpoints{{Locality: &core.Locality{Region: text}}},
		Policy:      &endpoint.ClusterLoadAssignment_Policy{OverprovisioningFactor: wrapperspb.UInt32(uint32(140 + step))},
	}
}

// version is the one that a client sees of a resource (RECON-1).
func (w world) version(k key, step int) string {
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(w.resource(k, step))
	if err != nil {
		panic(err) // made in this file, of strings that are UTF-8
	}
	return cache.Fingerprint{}.Of(string(k.typ), body, nil)
}

// revision is a version that the world has had.
type revision struct {
	key  key
	step int
}

// history is the world as the test follows it: what is now, and what ever was, so
// that whatever a client hears can be judged. Safe for concurrent use.
type history struct {
	world world

	mu       sync.RWMutex
	step     int
	now      map[key]state
	versions map[string]revision
	removals map[key][]int
	issued   []time.Time // of each step
}

func newHistory(w world) *history {
	h := &history{
		world: w, now: w.at(0), versions: make(map[string]revision), removals: make(map[key][]int),
		issued: []time.Time{time.Now()},
	}
	for k := range h.now {
		h.versions[w.version(k, 0)] = revision{k, 0}
	}
	return h
}

// advance takes one step, and returns its number.
func (h *history) advance() int {
	h.mu.Lock()
	n := h.step + 1
	h.mu.Unlock()
	changes := h.world.changes(n)
	versions := make([]string, len(changes))
	for i, c := range changes {
		if !c.removed {
			versions[i] = h.world.version(c.key, n)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.step = n
	h.issued = append(h.issued, time.Now())
	for i, c := range changes {
		h.now[c.key] = state{n, c.removed}
		if c.removed {
			h.removals[c.key] = append(h.removals[c.key], n)
		} else {
			h.versions[versions[i]] = revision{c.key, n}
		}
	}
	return n
}

// Step is the number of steps taken.
func (h *history) Step() int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.step
}

// lookup is the revision that a version stands for, and when it came about.
func (h *history) lookup(version string) (r revision, at time.Time, ok bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	r, ok = h.versions[version]
	return r, h.issued[r.step], ok
}

// removedSince: the world has removed the name after a step.
func (h *history) removedSince(k key, step int) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	all := h.removals[k]
	return len(all) > 0 && all[len(all)-1] > step
}

// everThere: the name stands for something that the world has never removed.
func (h *history) everThere(k key) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	_, known := h.now[k]
	return known && len(h.removals[k]) == 0
}

// target is the world at a moment, for those who are to catch up with it.
func (h *history) target() map[key]state {
	h.mu.RLock()
	defer h.mu.RUnlock()
	all := make(map[key]state, len(h.now))
	for k, s := range h.now {
		all[k] = s
	}
	return all
}

// wireSize is about how large a resource is in a Delta response.
func wireSize(w world, k key, step int) int64 {
	r := w.resource(k, step)
	return int64(proto.Size(r) + len(k.name) + len(k.typ) + len(w.version(k, step)) + 12)
}
