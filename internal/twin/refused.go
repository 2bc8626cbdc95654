package twin

import (
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
)

// A type that no client may have (NODE-14). It costs a client that type only: each name of it
// is answered with an error, once each time that a request names it, a wildcard is not answered
// at all, nor are names while that waits, and whatever else the client asks for goes on. On the
// pure cores only: over gRPC a group would have to be configured that nobody may enter.

// refusedType is that type, and permissionDenied the status with which it is refused.
const (
	refusedType      = "type.googleapis.com/test.Refused"
	permissionDenied = 7
)

// refusal is what a client has asked for of the refused type, on its stream.
type refusal struct {
	names    map[string]bool
	owed     map[string]bool // names that await their error
	wildcard bool
	asked    bool   // anything
	nonce    string // of the last response
}

// askRefused has a client ask for names of the refused type, and give some up.
func (g *Game) askRefused(p *player, add, drop []string) {
	if !p.open || !g.relay.Kills() || p.sotw && len(add) == 0 {
		return
	}
	if p.refused == nil {
		p.refused = &refusal{names: map[string]bool{}, owed: map[string]bool{}}
	}
	r := p.refused
	if len(add) == 0 && !r.asked {
		return // a first request that names nothing asks for everything
	}
	var m proto.Message
	if p.sotw {
		add = slices.DeleteFunc(slices.Clone(add), func(name string) bool { return name == wildcard })
		names := map[string]bool{}
		for _, name := range add {
			names[name] = true
			if !r.names[name] {
				r.owed[name] = true
			}
		}
		for name := range r.names {
			if !names[name] {
				delete(r.owed, name)
			}
		}
		r.names = names
		m = &discovery.DiscoveryRequest{TypeUrl: refusedType, ResourceNames: add, ResponseNonce: r.nonce, Node: p.node()}
	} else {
		drop = slices.DeleteFunc(slices.Clone(drop), func(name string) bool { return slices.Contains(add, name) })
		if len(add)+len(drop) == 0 || len(add) == 0 && r.nonce == "" {
			return // a first request that names nothing asks for everything
		}
		for _, name := range add {
			if name == wildcard {
				r.wildcard = true
				continue
			}
			r.names[name], r.owed[name] = true, true
		}
		for _, name := range drop {
			delete(r.names, name)
			delete(r.owed, name)
			r.wildcard = r.wildcard && name != wildcard
		}
		m = &discovery.DeltaDiscoveryRequest{TypeUrl: refusedType, ResourceNamesSubscribe: add, ResourceNamesUnsubscribe: drop, Node: p.node()}
	}
	r.asked = true
	g.log("c%d > %s", p.id, m)
	g.relay.Ask(p.id, m)
}

// toldRefused judges what a client is told of the refused type; false: it is of another one.
func (g *Game) toldRefused(p *player, m proto.Message, at time.Time) bool {
	var url, nonce string
	var errors []*discovery.ResourceError
	more := 0
	switch resp := m.(type) {
	case *discovery.DeltaDiscoveryResponse:
		url, nonce, errors, more = resp.GetTypeUrl(), resp.GetNonce(), resp.GetResourceErrors(), len(resp.GetResources())+len(resp.GetRemovedResources())
	case *discovery.DiscoveryResponse:
		url, nonce, errors, more = resp.GetTypeUrl(), resp.GetNonce(), resp.GetResourceErrors(), len(resp.GetResources())
	}
	if url != refusedType {
		return false
	}
	g.checker.now = at
	if p == nil || p.refused == nil || more > 0 {
		g.checker.fail("NODE-14", "a client is told of a type that is refused to it, or that it has not asked for")
		return true
	}
	p.refused.nonce = nonce
	for _, e := range errors {
		name := e.GetResourceName().GetName()
		if !p.refused.owed[name] || e.GetErrorDetail().GetCode() != permissionDenied {
			g.checker.fail("NODE-14", "c%d is told of %s, of a type that is refused to it, with %v, and awaits nothing or another status", p.id, name, e.GetErrorDetail())
		}
		delete(p.refused.owed, name)
	}
	return true
}

// refusedKnown judges whether every name of the refused type has its answer.
func (g *Game) refusedKnown() {
	for _, p := range g.everybody() {
		if !p.open || p.deaf || p.refused == nil || p.refused.wildcard {
			continue
		}
		for name := range p.refused.owed {
			g.checker.fail("NODE-14", "c%d has had no answer for %s, of a type that is refused to it", p.id, name)
		}
	}
}
