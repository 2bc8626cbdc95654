package session

import (
	"maps"
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// A client may subscribe to what its rules allow, and to nothing else (NODE-15). Names that it may not read
// are taken out of its requests. Each is answered with an error, whether the resource exists or not. What the
// client came with of them is removed. Behind the door nobody knows of rules.

// Reads is what a client may read of a type. It never changes, and may be used from any goroutine.
type Reads interface {
	// Allows reports whether the client may subscribe to a canonical name, or to the wildcard
	// ([fanout.Wildcard]).
	Allows(name string) bool
	// Rules says where the rules stand that the client has for the type, for the log.
	Rules() string
}

// nothing is what a client may read of a type that it has lost.
type nothing struct{}

func (nothing) Allows(string) bool { return false }
func (nothing) Rules() string      { return "" }

// door is where names enter the subscription of one type.
type door struct {
	reads Reads // nil: everything
	// denied has what the client asks for and may not read; the wildcard, too.
	denied nameSet
	// denies says that it was logged once that the client asks for such names.
	denies bool
	// spares says that the type, or the wildcard that the first request asks for, was refused from the
	// beginning (NODE-14), so that nothing is taken from the client.
	spares bool

	// Of a SotW client, which repeats its names: the newest ones, and those of them that it may read.
	// everything says that a request for nothing asks for the wildcard (WILD-2).
	newest, allowed []string
	everything      bool
}

// notAllowed is the error of a name that the client may not read. It must not depend on what exists.
var notAllowed = &statuspb.Status{Code: 7, Message: "xds-relay: the relay's rules do not allow this client to read it"}

func (d *door) allows(name string) bool { return d.reads == nil || d.reads.Allows(name) }

// separates returns the names that the client may read, and the others.
func (d *door) separates(names []string) (allowed, denied []string) {
	i := slices.IndexFunc(names, func(name string) bool { return !d.allows(name) })
	if i < 0 {
		return names, nil
	}
	allowed = slices.Clone(names[:i])
	for _, name := range names[i:] {
		if d.allows(name) {
			allowed = append(allowed, name)
		} else {
			denied = append(denied, name)
		}
	}
	return allowed, denied
}

// enters returns a request with the names that the client may read, and the others, which may include the
// wildcard, and names that the same request gives up. all says that a request that names nothing asks for
// everything.
func (d *deltaState) enters(req *discovery.DeltaDiscoveryRequest, all bool) (_ *discovery.DeltaDiscoveryRequest, denied []string) {
	if d.reads == nil {
		return req, nil
	}
	names := req.GetResourceNamesSubscribe()
	if all && len(names) == 0 {
		names = []string{fanout.Wildcard}
	}
	allowed, denied := d.separates(names)
	for _, name := range denied {
		put(&d.denied, name, struct{}{})
	}
	var givenUp []string
	for _, name := range req.GetResourceNamesUnsubscribe() {
		if d.denied.has(name) {
			drop(&d.denied, name)
			givenUp = append(givenUp, name)
		}
	}
	d.refused.drop(distinct(givenUp)) // nobody waits for their errors
	if len(denied) == 0 {
		return req, nil
	}
	return altered(req, allowed, req.GetInitialResourceVersions()), denied
}

// emptyIsAll reports whether a first request that names nothing asks for everything (WILD-2).
func (x *exchange) emptyIsAll() bool { return x.group.Hub.Properties(x.url).EmptyIsWildcard }

// enters returns the names of a request that the client may read, and whether it names more than these.
func (s *sotwState) enters(names []string) (allowed []string, more bool) {
	if s.reads == nil {
		return names, false
	}
	if len(names) > 0 {
		s.everything = false
	} else if !s.requested {
		s.everything = s.emptyIsAll()
	}
	if s.requested && slices.Equal(names, s.newest) {
		return s.allowed, len(s.denied) > 0
	}
	asked := names
	if s.everything {
		asked = []string{fanout.Wildcard}
	}
	allowed, denied := s.separates(asked)
	s.denied = nil
	for _, name := range denied {
		put(&s.denied, name, struct{}{})
	}
	if s.everything {
		allowed = names
	}
	s.newest, s.allowed = names, allowed
	return allowed, len(denied) > 0
}

// dismisses lists the removals of what the client has, or came with, and may not read, unless something that it
// may read covers it.
func (d *deltaState) dismisses(v fanout.View, p *part) {
	if len(d.denied) == 0 || !d.judging() || wildcard(v) {
		return
	}
	for _, name := range d.refused.items {
		if d.denied.has(name) && d.brings(name) && v.Resource(name) == nil {
			p.gone, p.answer = append(p.gone, name), true
		}
	}
}

// turnedAway lists the names that the client asks for and may not read, without the wildcard, which no error
// answers.
func (d *door) turnedAway() []string { return d.stillDenied(slices.Collect(maps.Keys(d.denied))) }

// stillDenied returns the names among some that are to be answered with an error: without the wildcard, and
// without those that have been given up.
func (d *door) stillDenied(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == fanout.Wildcard || !d.denied.has(name) })
}

// tellDenied makes news of it that the client asks for what it may not read, once for each type of a stream.
func (s *Session) tellDenied(x *exchange, denied int) {
	if denied == 0 {
		return
	}
	r := Refusal{Type: x.url, Reason: Forbidden, Message: notAllowed.GetMessage(), Notice: NoticeErrors, Names: denied, Repeated: x.denies, Rules: x.reads.Rules()}
	if x.denied.has(fanout.Wildcard) {
		r.Notice, r.Names = NoticeNothing, 0
	}
	x.denies = true
	s.refusals = append(s.refusals, r)
}

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
	switch {
	case end != nil && x.refusal != nil:
		x.refusal.turns(end, m.Rules, now)
		return nil
	case end == nil && x.refusal == nil && m.Hub == x.group.Hub && x.same(m.Reads):
		m.Leave()
		x.reads = m.Reads
		return nil
	case !s.kind.Delta:
		if end == nil {
			m.Leave()
		}
		return &End{RulesChanged, "xds-relay: the rules of what this client may read have changed; connect again"}
	case end != nil && (!m.Own || s.kind.Type != "") && end.Reason != Forbidden:
		return end
	case end != nil && end.Reason == Forbidden: // it stays where it is, and is served nothing
		m = x.group
		m.Reads = nothing{}
	default:
		defer x.group.Leave()
	}
	s.sift(x, m.Reads)
	was := x.sub
	if end == nil || end.Reason == Forbidden {
		st.move(s.exchangeOf(x.url, m), now)
	} else { // for want of room, say
		st.move(s.refusedBy(end, x.url, m, now), now)
		s.answer(st.base(), now)
	}
	was.Close(now)
	return nil
}

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
