package downstream

import (
	"math"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
)

// What an operator does to one client.

// Disconnect ends an open stream with UNAVAILABLE, so that its client connects again. It reports whether there is one
// of this number.
func (s *Server) Disconnect(id uint64) bool {
	if p := s.rest.pollers.find(id); p != nil {
		p.end(&session.End{Reason: operator, Message: "xds-relay: an operator has ended this poll; poll again"})
		return true
	}
	return s.dismiss(id, "xds-relay: an operator has ended this stream; connect again")
}

func (s *Server) dismiss(id uint64, why string) bool {
	st := s.find(id)
	if st != nil {
		st.end(&session.End{Reason: operator, Message: why})
	}
	return st != nil
}

// Resync has the client of an open stream sent again all that it asks for. A Delta client is served as if it asked for
// everything once more (DOWN-DELTA-7, WILD-5). SotW has no such request for the wildcard, so a SotW client's stream is
// ended: whoever comes back is sent everything (DOWN-SOTW-11). It reports whether there is a stream of this number.
func (s *Server) Resync(id uint64) bool {
	st := s.find(id)
	switch {
	case st == nil:
		return false
	case !st.kind.Delta:
		return s.dismiss(id, "xds-relay: an operator wants everything sent to this client again; connect again")
	}
	st.with(func(of *session.Session) {
		for _, t := range of.Describe() {
			if _, end := of.DeltaRequest(onceMore(of, t), time.Now()); end != nil {
				st.end(end)
			}
		}
	})
	st.kick()
	return true
}

// onceMore asks for what a client subscribes to of a type. It acknowledges nothing.
func onceMore(of *session.Session, t session.ClientType) *discovery.DeltaDiscoveryRequest {
	req := &discovery.DeltaDiscoveryRequest{TypeUrl: string(t.Type)}
	if t.Wildcard {
		req.ResourceNamesSubscribe = append(req.ResourceNamesSubscribe, fanout.Wildcard)
	}
	names, _ := of.Names(t.Type, "", math.MaxInt)
	for _, n := range names {
		if n.Asked {
			req.ResourceNamesSubscribe = append(req.ResourceNamesSubscribe, n.Name)
		}
	}
	return req
}

// ClientLacks describes the resources of a type that a stream's client has not accepted as they are. The stream may have
// ended.
func (s *Server) ClientLacks(id uint64, t cache.TypeURL) (names []session.ClientName) {
	if st := s.find(id); st != nil {
		st.with(func(of *session.Session) { names = of.Lacks(t) })
	}
	return names
}

// ClientName describes one resource of a type, as a stream's client has it. some is false if the client has nothing to
// do with it, or has gone.
func (s *Server) ClientName(id uint64, t cache.TypeURL, name string) (n session.ClientName, some bool) {
	if st := s.find(id); st != nil {
		st.with(func(of *session.Session) { n, some = of.Name(t, name) })
	}
	return n, some
}
