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

// Summary counts the open streams and connections, for metrics.
type Summary struct {
	// Connections is how many connections are open, streams or none, and MaxConnections how many
	// there may be; 0: there is no bound.
	Connections, MaxConnections int
	// Inflight is the memory of requests that are not taken in, in bytes.
	Inflight int
	// Names is how many names all streams have, MaxNames how many they may have, and MaxStreams how many
	// streams there may be; 0: there is no bound.
	Names, MaxNames, MaxStreams int
	// Pressed: memory is short, and new streams are refused.
	Pressed bool
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
	config := s.now.Load()
	sum := Summary{
		Connections: s.doors.connections(), MaxConnections: config.MaxConnections,
		Names: s.names.used(), MaxNames: config.MaxNamesOfAll, MaxStreams: config.MaxStreamsOfAll, Pressed: s.pressed() != nil,
		Inflight:  s.reading.used(),
		Protocols: map[string]int{}, Sync: map[session.Sync]int{}, Refused: map[session.RefusedType]int{},
	}
	groups := make(map[*fanout.Hub]int)
	for _, st := range s.open() {
		sum.Protocols[st.protocol()]++
		st.with(func(of *session.Session) {
			sum.Sync[of.Sync()]++
			hubs, refused := of.Served()
			for _, hub := range hubs {
				groups[hub]++
			}
			for _, r := range refused {
				sum.Refused[r]++
			}
		})
	}
	sum.Groups = slices.Collect(maps.Values(groups))
	return sum
}

func (s *Server) open() []*stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.streams))
}

func (st *stream) describe() Client {
	c := Client{Stream: st.id, Peer: st.peer.Address, Identity: st.peer.Identity, Protocol: st.protocol(), Since: st.since}
	st.with(func(of *session.Session) {
		c.Node, c.Cluster, c.Types = of.Node().GetId(), of.Node().GetCluster(), of.Describe()
	})
	return c
}

// Check returns the invariants of streams and senders that do not hold. They must hold at any
// time. Check looks at everything that every client has asked for, one client after another.
func (s *Server) Check() []string {
	broken := append(s.senders.check(), s.names.check()...)
	broken = append(broken, s.doors.check()...)
	s.mu.Lock()
	broken = append(broken, s.places.Check()...)
	s.mu.Unlock()
	for _, st := range s.open() {
		st.with(func(of *session.Session) {
			for _, b := range of.Check() {
				broken = append(broken, fmt.Sprintf("stream %d: %s", st.id, b))
			}
		})
	}
	return broken
}
