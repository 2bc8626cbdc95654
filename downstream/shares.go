package downstream

import (
	"fmt"
	"sync"
	"time"

	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/share"
)

// What all clients may have together is bounded (VALID-8). Here are the streams and the names of streams;
// connections are in doors, and groups are not the Server's. Unary calls count as streams.

// served is a stream or a unary call, which ends for a reason of the relay's.
type served interface{ end(e *session.End) }

// place is the part that a stream or call has of all streams, or of all names.
type place = share.Entry[served]

// takePlace gives a stream or call its place, or says why there is none. Its caller ends those who are displaced for
// it, with displace, after the lock is released. The Server's mutex is held.
func (s *Server) takePlace(peer *session.Peer, of served) (p *place, displaced []served, end *session.End) {
	config := s.now.Load()
	p = s.places.Enter(peer.Holder, peer.Relay, of)
	got, displaced := s.places.Take(p, 1, config.MaxStreamsOfAll, nil)
	if got == 0 {
		end = &session.End{Reason: session.StreamsFull, Message: fmt.Sprintf("xds-relay: all clients together have %d streams, and this client has its share; see downstream.max_streams", config.MaxStreamsOfAll)}
	}
	return p, displaced, end
}

// displace ends those whose place another client's stream or call has taken.
func displace(streams []served) {
	for _, st := range streams {
		st.end(&session.End{Reason: session.DisplacedStream, Message: "xds-relay: all clients together have downstream.max_streams, and a client with fewer needed one; connect again, to another replica if there is one"})
	}
}

// turnAway refuses a stream or call for which there is no room.
func (s *Server) turnAway(protocol string, peer *session.Peer, end *session.End) error {
	if end.Reason != session.ShuttingDown {
		s.observer.ClientDisconnected(protocol, end.Reason)
		s.full.warn(s.log, string(end.Reason), "clients are refused: "+end.Message, "reason", end.Reason, "protocol", protocol, "peer", peer.Address, "identity", peer.Identity)
	}
	return statusOf(end).Err()
}

// names are those of all streams together.
type names struct {
	now func() *ServerConfig

	mu     sync.Mutex
	ledger share.Ledger[served]
	asked  buckets // the names that upstream had not been asked for
	// crowd has an element for each request of very many names that is being taken in.
	crowd chan struct{}
}

func (n *names) init(now func() *ServerConfig, processors int) {
	n.now, n.crowd = now, make(chan struct{}, max(processors/2, 1))
	n.asked.within = newNamesIn / time.Duration(processors)
}

// allowance is the part of them that a stream or call has. It is a session.Allowance.
type allowance struct {
	of    *names
	entry *place
	// displaced are the streams that have to go because of this one. They are ended when its lock is released.
	displaced []served
}

func (n *names) enter(peer *session.Peer, of served) *allowance {
	return &allowance{of: n, entry: n.ledger.Enter(peer.Holder, peer.Relay, of)}
}

// Take implements session.Allowance.
func (a *allowance) Take(n int) int {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	got, displaced := a.of.ledger.Take(a.entry, n, a.of.now().MaxNamesOfAll, nil)
	a.displaced = append(a.displaced, displaced...)
	return got
}

// TakeAll implements session.Allowance.
func (a *allowance) TakeAll(n int) bool {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	ok, displaced := a.of.ledger.TakeAll(a.entry, n, a.of.now().MaxNamesOfAll)
	a.displaced = append(a.displaced, displaced...)
	return ok
}

// Give implements session.Allowance.
func (a *allowance) Give(n int) {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	a.of.ledger.Give(a.entry, n)
}

// Room implements session.Allowance.
func (a *allowance) Room() int {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	most := a.of.now().MaxNamesOfAll
	if most == 0 {
		return session.Plenty
	}
	return most - a.of.ledger.Used()
}

// asks counts names that upstream has not been asked for, or for which there is no room, and returns how long their
// holder has to wait until it may ask for more.
func (a *allowance) asks(n int, now time.Time) time.Duration {
	holder, exempt := a.entry.Holder()
	if exempt {
		return 0
	}
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	over := a.of.asked.add(holder, n, newNames, now)
	return time.Duration(over / newNames * float64(a.of.asked.within))
}

// displace ends those whose names this one's have replaced. No lock is held.
func (a *allowance) displace() {
	for _, st := range a.displaced {
		st.end(&session.End{Reason: session.DisplacedNames, Message: "xds-relay: the streams of all clients together have downstream.max_names, and a client with fewer needed some; connect again, to another replica if there is one"})
	}
	a.displaced = nil
}

// used is how many names there are.
func (n *names) used() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ledger.Used()
}

// check returns the invariants that do not hold.
func (n *names) check() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ledger.Check()
}

// refuses says why nothing new is taken in on a connection, if that is so.
func (s *Server) refuses(on *conn, now time.Time) *session.End {
	if end := on.expired(now); end != nil {
		return end
	}
	return s.pressed()
}

// pressed refuses what is new while memory is short.
func (s *Server) pressed() *session.End {
	if pressed := s.config.Pressed; pressed != nil && pressed() {
		return &session.End{Reason: session.MemoryPressure, Message: "xds-relay: memory is short here; connect to another replica"}
	}
	return nil
}
