package session

import (
	"sync"
	"sync/atomic"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// warm makes clusters that are about to be sent be followed by their endpoints: an Envoy that
// gets a changed cluster waits for its endpoints again, and does not ask for those that it
// already watches (ORDER-4). Endpoints that are answered later in the same flush satisfy it.
func (s *Session) warm(clusters []*cache.Resource) {
	var names []string
	for _, c := range clusters {
		if c.EndpointName != "" {
			names = append(names, c.EndpointName)
		}
	}
	if len(names) == 0 {
		return
	}
	st := s.serving(cache.Endpoint)
	if st == nil {
		// The client may come with versions of these endpoints soon.
		if d, ok := s.serving(cache.Cluster).(*deltaState); ok && d.reconnected {
			for _, name := range names {
				put(&d.needed, name, struct{}{})
			}
		}
		return
	}
	x := st.base()
	x.sub.Read(func(v fanout.View) {
		for _, name := range names {
			x.warms(v, name)
		}
	})
}

// warms has endpoints resent, by their name or, to a Delta client, as whatever leads to them.
func (x *exchange) warms(v fanout.View, name string) {
	if id, ok := v.Lookup(name); ok {
		x.changed.add(id)
		x.exact.unknown(name)
		v.SendAgain(id)
	} else if v.Resource(name) != nil && x.delta {
		x.unknown(v, name)
		put(&x.touched.resend, name, struct{}{})
	}
}

// comesWithoutClusters handles a client that comes with endpoints and came without clusters: the
// clusters that it was sent since need their endpoints as well (ORDER-4). These are looked up
// here, and not kept for every client, since most clients have no endpoints before they have
// clusters.
func (s *Session) comesWithoutClusters(d *deltaState, first *discovery.DeltaDiscoveryRequest) {
	clusters, ok := s.serving(cache.Cluster).(*deltaState)
	comes := d.api == cache.Endpoint && len(first.GetInitialResourceVersions()) > 0
	if !ok || !comes || clusters.reconnected {
		return
	}
	clusters.sub.Read(func(v fanout.View) {
		for _, r := range everything(v) {
			if r.EndpointName != "" && clusters.holds(v, r) {
				put(&d.needed, r.EndpointName, struct{}{})
			}
		}
	})
}

// ClusterDeliveries counts the deliveries of clusters to each node on all streams, for clients that have a
// stream for each type (ORDER-5). It belongs to the Server.
type ClusterDeliveries struct {
	mu    sync.Mutex
	nodes map[string]*nodeDeliveries
}

type nodeDeliveries struct {
	streams    int // guarded by ClusterDeliveries.mu
	deliveries atomic.Uint64
}

// NewClusterDeliveries returns an empty count.
func NewClusterDeliveries() *ClusterDeliveries {
	return &ClusterDeliveries{nodes: make(map[string]*nodeDeliveries)}
}

// join returns the count of a node, which is kept until all streams of the node have left.
func (w *ClusterDeliveries) join(node string) *nodeDeliveries {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.nodes[node] == nil {
		w.nodes[node] = &nodeDeliveries{}
	}
	w.nodes[node].streams++
	return w.nodes[node]
}

func (w *ClusterDeliveries) leave(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.nodes[node]
	if n.streams--; n.streams == 0 {
		delete(w.nodes, node)
	}
}
