package session

import (
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Rules change while streams are open (NODE-15).

// Rejudge applies rules that have changed (NODE-15): a Delta client is served each type whose rules differ for
// it as if it had just come back with what it holds. A SotW stream ends, since its client has to ask again.
func (s *Session) Rejudge(now time.Time) *End {
	if s.ofNode == nil {
		return nil
	}
	key, end := s.groups.Key(s.peer, s.node)
	if end != nil {
		return end
	}
	s.key = key
	for _, st := range s.states {
		if end := s.rejoin(st, now); end != nil {
			return end
		}
	}
	return nil
}

// rejoin serves a type by the rules of now.
func (s *Session) rejoin(st state, now time.Time) *End {
	x := st.base()
	m, end := s.groups.Join(s.peer, s.node, x.url)
	var to exchange
	switch leave := x.group.Leave; {
	case end != nil && x.refusal != nil:
		s.turn(x.refusal, end, m.Rules, now)
		return nil
	case end == nil && x.goesOn(m):
		m.Leave()
		x.reads = m.Reads
		return nil
	case !s.kind.Delta:
		if end == nil {
			m.Leave()
		}
		return &End{RulesChanged, "xds-relay: the rules of what this client may read have changed; connect again"}
	case end == nil:
		defer leave()
		to = s.exchangeOf(x.url, m)
	case end.Reason == Forbidden: // it stays where it is, and is served nothing
		m = x.group
		m.Reads = nothing{}
		to = s.exchangeOf(x.url, m)
	case !s.costsTypeOnly(m):
		return end
	default: // for want of room, say
		defer leave()
		to = s.refusedBy(end, x.url, m, now)
	}
	s.sift(x, m.Reads)
	was := *x
	st.(*deltaState).move(to, now)
	s.answer(st.base(), now)
	s.leave(&was, now)
	return nil
}

// goesOn reports whether nothing changes for the client of a type.
func (x *exchange) goesOn(m Membership) bool {
	served := x.refusal == nil && m.Hub == x.group.Hub
	return served && x.same(m.Reads)
}

// nothing is what a client may read of a type that it has lost.
type nothing struct{}

func (nothing) Allows(string) bool { return false }
func (nothing) Rules() string      { return "" }

// sift takes out of the parts of a response that are still to be sent what other rules do not let the client read.
func (s *Session) sift(x *exchange, reads Reads) {
	if s.chunked == nil || s.chunked.base() != x {
		return
	}
	other := door{reads: reads}
	x.sub.Read(func(v fanout.View) {
		lost := func(res *cache.Resource) bool { return !other.covers(v, res) }
		for _, r := range s.chunks {
			r.Resources = slices.DeleteFunc(slices.Clone(r.Resources), lost)
			r.Heartbeats = slices.DeleteFunc(slices.Clone(r.Heartbeats), lost)
			r.Errors = slices.DeleteFunc(r.Errors, func(e *discovery.ResourceError) bool { return !other.allows(e.GetResourceName().GetName()) })
		}
	})
}

// covers reports whether the client may read a resource because of something that it subscribes to.
func (d *door) covers(v fanout.View, res *cache.Resource) bool {
	if wildcard(v) && d.allows(fanout.Wildcard) && v.Set().Member(res.Name) != nil {
		return true
	}
	for name := range res.Names() {
		if subscribes(v, name) && d.allows(name) {
			return true
		}
	}
	return false
}

// same reports whether other rules say the same of everything that the client asks for.
func (x *exchange) same(reads Reads) bool {
	other := door{reads: reads}
	var names []string
	x.sub.Read(func(v fanout.View) {
		for _, id := range v.Names() {
			names = append(names, v.Name(id))
		}
		if wildcard(v) {
			names = append(names, fanout.Wildcard)
		}
	})
	for name := range x.denied {
		if other.allows(name) {
			return false
		}
	}
	return !slices.ContainsFunc(names, func(name string) bool { return !other.allows(name) })
}
