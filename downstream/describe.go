package downstream

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
)

// Client describes one stream for the admin endpoint.
type Client struct {
	Stream   uint64               `json:"stream"`
	Node     string               `json:"node"`
	Cluster  string               `json:"cluster,omitempty"`
	Peer     string               `json:"peer"`
	Identity string               `json:"identity,omitempty"`
	Protocol string               `json:"protocol"`
	Since    time.Time            `json:"since"`
	Types    []session.ClientType `json:"types"`
}

// Summary counts the open streams, for metrics.
type Summary struct {
	// Protocols counts by "delta" and "sotw".
	Protocols map[string]int
	// Sync counts each stream once, by the worst of its types.
	Sync map[session.Sync]int
	// Groups has the number of streams of each group that has any (H-24).
	Groups []int
	// Refused counts the types that are refused while their streams go on (NODE-14).
	Refused map[session.RefusedType]int
}

// Summary counts the open streams. Unlike Clients it looks at no name, so it can be called often.
func (s *Server) Summary() Summary {
	sum := Summary{Protocols: map[string]int{}, Sync: map[session.Sync]int{}, Refused: map[session.RefusedType]int{}}
	groups := make(map[*fanout.Hub]int)
	for _, st := range s.open() {
		sum.Protocols[st.protocol()]++
		sync, hubs, refused := st.summary()
		sum.Sync[sync]++
		for _, hub := range hubs {
			groups[hub]++
		}
		for _, r := range refused {
			sum.Refused[r]++
		}
	}
	sum.Groups = slices.Collect(maps.Values(groups))
	return sum
}

func (s *Server) open() []*stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.streams))
}

// summary returns the worst state of the stream's types, the Hubs that serve it, and its types that
// no group serves.
func (st *stream) summary() (sync session.Sync, hubs []*fanout.Hub, refused []session.RefusedType) {
	st.mu.Lock()
	defer st.mu.Unlock()
	hubs, refused = st.session.Served()
	return st.session.Sync(), hubs, refused
}

func (st *stream) describe() Client {
	st.mu.Lock()
	defer st.mu.Unlock()
	return Client{
		Stream: st.id, Peer: st.peer.Address, Identity: st.peer.Identity,
		Protocol: st.protocol(), Since: st.since,
		Node: st.session.Node().GetId(), Cluster: st.session.Node().GetCluster(),
		Types: st.session.Describe(),
	}
}

// Check returns the invariants of streams and senders that do not hold. They must hold at any
// time. Check looks at everything that every client has asked for, one client after another.
func (s *Server) Check() []string {
	broken := s.senders.check()
	for _, st := range s.open() {
		for _, b := range st.check() {
			broken = append(broken, fmt.Sprintf("stream %d: %s", st.id, b))
		}
	}
	return broken
}

func (st *stream) check() []string {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.session.Check()
}
