package session

import (
	"sync"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// warm follows clusters that are about to be sent with the endpoints they need:
// an Envoy that gets a changed cluster waits for its endpoints again, and does not
// ask for those it already watches (ORDER-4). Endpoints answered later in the same
// flush satisfy it.
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
	st := s.find(cache.Endpoint)
	if st == nil {
		// The client may come with versions of these endpoints in a moment.
		if d, ok := s.find(cache.Cluster).(*deltaState); ok && d.reconnected {
			d.remember(names)
		}
		return
	}
	x := st.base()
	d, _ := st.(*deltaState)
	x.sub.Read(func(v fanout.View) {
		for _, name := range names {
			if id, ok := v.Lookup(name); ok {
				x.changed.add(id)
				if x.warmed == nil {
					x.warmed = make(map[cache.ID]bool)
				}
				x.warmed[id] = true
			} else if r := v.Member(name); r != nil && d != nil {
				if subscribed, _ := v.Wildcard(); subscribed {
					d.left.add(name)
				}
			}
			if d != nil && d.held != nil {
				d.spareNot(name)
			}
		}
	})
}

// Warmth counts the clusters delivered to each node on whatever stream, for
// clients that have a stream for each type (ORDER-5). It belongs to the Server.
type Warmth struct {
	mu    sync.Mutex
	nodes map[string]*nodeWarmth
}

type nodeWarmth struct {
	streams    int
	deliveries uint64
}

// NewWarmth returns a count that is empty.
func NewWarmth() *Warmth { return &Warmth{nodes: make(map[string]*nodeWarmth)} }

func (w *Warmth) join(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.nodes[node]
	if n == nil {
		n = &nodeWarmth{}
		w.nodes[node] = n
	}
	n.streams++
}

func (w *Warmth) leave(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.nodes[node]; n != nil {
		if n.streams--; n.streams == 0 {
			delete(w.nodes, node)
		}
	}
}

func (w *Warmth) deliver(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.nodes[node]; n != nil {
		n.deliveries++
	}
}

func (w *Warmth) deliveries(node string) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.nodes[node]; n != nil {
		return n.deliveries
	}
	return 0
}
