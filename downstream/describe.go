package downstream

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
)

// Client describes one stream for the admin endpoint, or one client that polls, which has a number as streams have.
type Client struct {
	Stream   uint64               `json:"stream"`
	Node     string               `json:"node"`
	Cluster  string               `json:"cluster,omitempty"`
	Peer     string               `json:"peer"`
	Identity string               `json:"identity,omitempty"`
	Protocol string               `json:"protocol"`
	Since    time.Time            `json:"since"`
	Sync     session.Sync         `json:"sync"` // the worst of its types
	Types    []session.ClientType `json:"types"`
	// Responses is how many the stream was sent, Bytes how large they were together, before compression and
	// TLS, and Nacks how many of them the client rejected.
	Responses int64 `json:"responses"`
	Bytes     int64 `json:"bytes"`
	Nacks     int64 `json:"nacks"`
}

// Holder is a version of a resource, and how many clients have it. A client that lacks the resource counts
// as one of version "".
type Holder struct {
	Version string       `json:"version"`
	Step    session.Step `json:"step"`
	Clients int          `json:"clients"`
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
	// Protocols counts by "delta", "sotw" and "rest".
	Protocols map[string]int
	// Sync counts each stream once, by the worst of its types.
	Sync map[session.Sync]int
	// Lagging counts the streams that have not been in step for longer than each of LagSteps.
	Lagging [len(LagSteps)]int
	// Groups has the number of streams of each group that has any (H-24).
	Groups []int
	// Refused counts the types that are refused while their streams go on (NODE-14).
	Refused map[session.RefusedType]int
}

// LagSteps are how long a client may have been out of step to count in Summary.Lagging.
var LagSteps = [...]time.Duration{5 * time.Second, 30 * time.Second, 5 * time.Minute}

// lags counts a stream that has been out of step since a time.
func (s *Summary) lags(since, now time.Time) {
	for i, step := range LagSteps {
		if !since.IsZero() && now.Sub(since) > step {
			s.Lagging[i]++
		}
	}
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
	now := time.Now()
	for _, st := range s.open() {
		sum.Protocols[st.protocol()]++
		st.with(func(of *session.Session) {
			sum.Sync[of.Sync()]++
			sum.lags(of.Since(), now)
			hubs, refused := of.Served()
			for _, hub := range hubs {
				groups[hub]++
			}
			for _, r := range refused {
				sum.Refused[r]++
			}
		})
	}
	s.rest.pollers.summarize(&sum, now)
	sum.Groups = slices.Collect(maps.Values(groups))
	return sum
}

// Client describes an open stream. ok is false if there is none of this number.
func (s *Server) Client(id uint64) (c Client, ok bool) {
	if st := s.find(id); st != nil {
		return st.describe(), true
	}
	if p := s.rest.pollers.find(id); p != nil {
		return s.rest.pollers.describe(p), true
	}
	return Client{}, false
}

// ClientNames describes the resources of a type that a stream's client has or asks for, in order of their
// names, after a name and at most so many. more: there are others. The stream may have ended.
func (s *Server) ClientNames(id uint64, t cache.TypeURL, after string, most int) (names []session.ClientName, more bool) {
	if st := s.find(id); st != nil {
		st.with(func(of *session.Session) { names, more = of.Names(t, after, most) })
		return names, more
	}
	return s.rest.pollers.names(id, t, after, most)
}

// Holders returns which versions of a resource a group's clients have, those of most clients first.
func (s *Server) Holders(hub *fanout.Hub, t cache.TypeURL, name string) (all []Holder) {
	counts := make(map[Holder]int)
	for _, st := range s.open() {
		st.with(func(of *session.Session) {
			if !of.ServedBy(hub, t) {
				return
			}
			if n, some := of.Name(t, name); some {
				counts[Holder{Version: n.Sent, Step: n.Step}]++
			}
		})
	}
	for h, n := range counts {
		h.Clients = n
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b Holder) int {
		return cmp.Or(cmp.Compare(b.Clients, a.Clients), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Step, b.Step))
	})
	return all
}

// View is a stream whose types are read one after the other, each of them at one instant (CSDS-6).
type View struct {
	Node  *core.Node // as the client presented it; nobody may change it
	Types []TypeView

	scratch []string
}

// TypeView is one type of it, and all resources that the client has or asks for: either these names, or a set that
// the client has accepted all of. All clients that have the same set share one Whole, which nobody may change.
type TypeView struct {
	session.ClientType
	Names []session.ClientName
	Whole *fanout.News
}

// Streams returns the numbers of the open streams, oldest first.
func (s *Server) Streams() []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.streams))
}

// View looks at an open stream whose client's node is wanted. It takes the memory of an earlier View. ok is false if
// there is no such stream.
func (s *Server) View(id uint64, wanted func(*core.Node) bool, into *View) (ok bool) {
	st := s.find(id)
	if st == nil {
		return false
	}
	st.with(func(of *session.Session) { into.Node = of.Node() })
	if into.Node == nil || !wanted(into.Node) { // no lock is held
		return false
	}
	st.with(func(of *session.Session) {
		before := into.Types
		into.Types = into.Types[:0]
		for i, t := range of.Describe() {
			var names []session.ClientName
			if i < len(before) {
				names = before[i].Names[:0]
			}
			whole := of.WholeSet(t.Type)
			if whole == nil {
				names, into.scratch = of.AllNames(t.Type, names, into.scratch)
			}
			into.Types = append(into.Types, TypeView{t, names, whole})
		}
	})
	return true
}

func (s *Server) find(id uint64) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams[id]
}

func (s *Server) open() []*stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.streams))
}

func (st *stream) describe() Client {
	c := Client{
		Stream: st.id, Peer: st.peer.Address, Identity: st.peer.Identity, Protocol: st.protocol(), Since: st.since,
		Responses: st.responses.Load(), Bytes: st.sentSize.Load(), Nacks: st.nacks.Load(),
	}
	st.with(func(of *session.Session) {
		c.Node, c.Cluster, c.Types, c.Sync = of.Node().GetId(), of.Node().GetCluster(), of.Describe(), of.Sync()
	})
	return c
}

// Check returns the invariants of streams and senders that do not hold. They must hold at any
// time. Check looks at everything that every client has asked for, one client after another.
func (s *Server) Check() []string {
	broken := append(s.senders.check(), s.names.check()...)
	broken = append(broken, s.doors.check()...)
	broken = append(broken, s.rest.pollers.check()...)
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
