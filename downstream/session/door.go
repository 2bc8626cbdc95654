package session

import (
	"maps"
	"slices"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"

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

// enters returns the names of a request that the client may read, and whether it asks for more than these.
func (s *sotwState) enters(names []string) (allowed []string, denied bool) {
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
	allowed, others := s.separates(asked)
	s.denied = nil
	for _, name := range others {
		put(&s.denied, name, struct{}{})
	}
	if s.everything {
		allowed = names
	}
	s.newest, s.allowed = names, allowed
	return allowed, len(others) > 0
}

// dismisses lists the removals of what the client has, or came with, and may not read, unless something that it
// may read covers it.
func (d *deltaState) dismisses(v fanout.View, p *plan) {
	if len(d.denied) == 0 || !d.reconciling() || wildcard(v) {
		return
	}
	for _, name := range d.refused.items {
		if d.denied.has(name) && d.claims(name) && v.Resource(name) == nil {
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
