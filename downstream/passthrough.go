package downstream

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/share"
)

// Here is the door for calls of services that the relay does not have, and that go through to the control plane
// (LRS-2); passed.go has such a call. They take no part of what all streams of discovery have together: each service has
// its own bound, shared out between clients like that one.

// Service is a service whose calls go through.
type Service struct {
	// Name is the full one.
	Name string
	// MaxCalls bounds its calls.
	MaxCalls int
	// ForwardHeaders are the headers of clients that go up with its calls.
	ForwardHeaders []string
	// SaysNode: its messages are load reports, of which the first one says the client's node.
	SaysNode bool
	// Summed: the reports of many clients are added up, and go up as one (LRS-4).
	Summed bool
}

// Through is where the calls go.
type Through interface {
	// Admit says why a client may not have a call, if that is so; node is what it says of itself, or nil if the service
	// has no such thing.
	Admit(client session.Peer, node *core.Node) *session.End
	// Open opens a call at the control plane, with the client's headers. It ends with ctx, and with Client.End if it
	// cannot go on for a reason of the relay's.
	Open(ctx context.Context, o Opening) (ThroughCall, error)
}

// Opening is a call that is to go through.
type Opening struct {
	Service *Service
	Method  string
	Client  session.Peer
	// Node is what the client says of itself, in wire form; nil: the service has no such thing.
	Node []byte
}

// ThroughCall is a call at the control plane, for messages of package passthrough. Leave is called when it is over.
type ThroughCall interface {
	grpc.ClientStream
	Leave()
}

// passing has the services that go through, and their calls.
type passing struct {
	lead atomic.Pointer[lead]
	// Guarded by Server.mu.
	calls  map[*passed]bool
	places map[string]*share.Ledger[served] // by service
}

// lead is which services go through, and where.
type lead struct {
	services map[string]*Service
	to       Through
}

// PassThrough sets which services go through. Calls of others that are open end.
func (s *Server) PassThrough(services []Service, to Through) {
	l := &lead{make(map[string]*Service), to}
	for _, service := range services {
		l.services[service.Name] = &service
	}
	s.passing.lead.Store(l)
	for _, p := range s.passed() {
		if now := l.services[p.service.Name]; now == nil || now.Summed != p.service.Summed {
			p.end(&session.End{Reason: session.Redirected, Message: fmt.Sprintf("xds-relay: %s goes through no more, or in another way; see passthrough", p.service.Name)})
		}
	}
}

// of returns the service of a method that goes through, or nil.
func (l *lead) of(method string) *Service {
	if l == nil {
		return nil
	}
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	return l.services[service]
}

// pass runs one call of a method that the relay does not have.
func (s *Server) pass(_ any, g grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(g)
	l := s.passing.lead.Load()
	service := l.of(method)
	if service == nil {
		return status.Errorf(codes.Unimplemented, "xds-relay: unknown method %.200s; services of the control plane go through if they are listed in passthrough", method)
	}
	writer, ok := grpc.ServerTransportStreamFromContext(g.Context()).(statusWriter)
	if !ok {
		return status.Error(codes.Internal, "xds-relay: built with a version of gRPC that cannot end a call from outside")
	}
	answersPlainly(g.Context())
	p := &passed{server: s, service: service, to: l.to, grpc: g, status: writer, since: time.Now()}
	p.ctx, p.cancel = context.WithCancelCause(g.Context())
	p.peer, p.conn = peerOf(g.Context(), &s.now.Load().Config)
	p.peer.End, p.peer.Stream = p.end, p
	md, _ := metadata.FromIncomingContext(g.Context())
	p.peer.Sent(md, &session.Config{ForwardHeaders: service.ForwardHeaders})
	if end := s.letPass(p); end != nil {
		p.cancel(nil)
		sendAway(g.Context(), end)
		s.observer.ClientCallEnded(service.Name, codes.Code(end.Code()))
		return s.turnAway(throughProtocol, &p.peer, end)
	}
	return p.serve(method)
}

// throughProtocol is what an Observer and the log call such calls.
const throughProtocol = "passthrough"

// letPass gives a call its place among those of its service.
func (s *Server) letPass(p *passed) (end *session.End) {
	var displaced []served
	defer func() { // after the lock is released
		for _, other := range displaced {
			other.end(&session.End{Reason: session.DisplacedCall, Message: fmt.Sprintf("xds-relay: there are passthrough[].max_calls of %s, and a client with fewer needed one; call again, at another replica if there is one", p.service.Name)})
		}
	}()
	if end := s.refuses(p.conn, p.since); end != nil {
		return end
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if end := s.leaving(); end != nil {
		return end
	}
	of := s.passing.places[p.service.Name]
	if of == nil {
		of = new(share.Ledger[served])
		s.passing.places[p.service.Name] = of
	}
	p.place = of.Enter(p.peer.Holder, p.peer.Relay, p)
	got, displaced := of.Take(p.place, 1, p.service.MaxCalls, nil)
	if got == 0 {
		return &session.End{Reason: session.CallsFull, Message: fmt.Sprintf("xds-relay: there are %d calls of %s, and this client has its share; see passthrough[].max_calls", p.service.MaxCalls, p.service.Name)}
	}
	s.passing.calls[p] = true
	s.calls++
	if p.conn != nil {
		p.conn.streams++
	}
	return nil
}

// gone gives the place of a call back.
func (s *Server) gone(p *passed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.passing.places[p.service.Name].Leave(p.place)
	delete(s.passing.calls, p)
	s.calls--
	if p.conn != nil {
		p.conn.streams--
	}
}

// passed are the calls that are open.
func (s *Server) passed() []*passed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.passing.calls))
}

// Calls counts the open calls of each service that goes through.
func (s *Server) Calls() map[string]int {
	counts := make(map[string]int)
	if l := s.passing.lead.Load(); l != nil {
		for name := range l.services {
			counts[name] = 0
		}
	}
	for _, p := range s.passed() {
		counts[p.service.Name]++
	}
	return counts
}
