package twin

import (
	"maps"
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
)

// Types that clients may not have (NODE-14): one that no client may have, and two for which there may be no
// room. Such a type costs a client that type only. Each name of it is answered with an error, once each
// time that a request names it. A wildcard is not answered, nor are names while it waits. A type without
// room is served within a minute of there being some (room.go). This is played on the pure cores only:
// over gRPC, groups would have to be configured for it.
const (
	refusedType = "type.googleapis.com/test.Refused"
	crowdedType = "type.googleapis.com/test.Crowded"
	fullestType = "type.googleapis.com/test.Fullest" // the same, full-state

	permissionDenied  = 7
	resourceExhausted = 8
)

// refusal is what a client has asked for of one of these types, on its stream.
type refusal struct {
	url      string
	names    map[string]bool
	owed     map[string]bool // names that await their answer
	wildcard bool
	asked    bool            // anything
	came     map[string]bool // names that a SotW client came with, asks for, and that no set has taken from it
	nonce    string          // of the last response
	room     room
}

// crowds reports whether there may be room for the type.
func (r *refusal) crowds() bool { return r.url != refusedType }

// askRefused has a client ask for names of such a type, and give some up. brings: it comes with resources
// of it, if this is its first request.
func (g *Game) askRefused(p *player, url string, add, drop []string, brings bool) {
	if p.sotw { // it never asks for the wildcard
		add = slices.DeleteFunc(slices.Clone(add), func(name string) bool { return name == wildcard })
	}
	if !p.open || !g.relay.Kills() || p.sotw && len(add) == 0 {
		return
	}
	r := p.refused[url]
	if r == nil {
		r = &refusal{url: url, names: map[string]bool{}, owed: map[string]bool{}, came: map[string]bool{}, room: newRoom(g.hasRoom)}
	}
	if brings = brings && r.crowds() && !r.asked; len(add) == 0 && !r.asked {
		return // a first request that names nothing asks for everything
	}
	var m proto.Message
	if p.sotw {
		m = r.sotw(p, add, brings)
	} else {
		drop = slices.DeleteFunc(slices.Clone(drop), func(name string) bool { return slices.Contains(add, name) })
		if len(add)+len(drop) == 0 || len(add) == 0 && r.nonce == "" {
			return // a first request that names nothing asks for everything
		}
		m = r.delta(p, add, drop, brings, g.roomVersions)
	}
	r.asked = true
	p.refused[url] = r
	g.log("c%d > %s", p.id, m)
	g.relay.Ask(p.id, m)
}

func (r *refusal) sotw(p *player, add []string, brings bool) proto.Message {
	names := map[string]bool{}
	for _, name := range add {
		if names[name] = true; !r.names[name] {
			r.asks(name)
		}
	}
	for name := range r.names {
		if !names[name] {
			r.gives(name)
		}
	}
	r.names = names
	m := &discovery.DiscoveryRequest{TypeUrl: r.url, ResourceNames: add, ResponseNonce: r.nonce, Node: p.node()}
	if brings {
		m.VersionInfo, r.came = "foreign", maps.Clone(names)
	}
	return m
}

func (r *refusal) delta(p *player, add, drop []string, brings bool, versions map[string]string) proto.Message {
	m := &discovery.DeltaDiscoveryRequest{TypeUrl: r.url, ResourceNamesSubscribe: add, ResourceNamesUnsubscribe: drop, Node: p.node()}
	if brings {
		m.InitialResourceVersions = r.room.brings(r.url, versions)
	}
	for _, name := range add {
		if name == wildcard {
			r.wildcard = true
			r.room.asksAll()
			continue
		}
		r.names[name] = true
		r.asks(name)
		if r.room.spared[name] = brings && r.room.holds[name]; r.room.spared[name] {
			delete(r.room.may, name) // DOWN-DELTA-8
		}
	}
	members := r.wildcard
	r.wildcard = r.wildcard && !slices.Contains(drop, wildcard)
	for _, name := range drop {
		had := r.names[name] || name == wildcard && members
		delete(r.names, name)
		if !brings && (had || name != wildcard) { // what it comes with and does not ask for, the relay must remove (DOWN-DELTA-11)
			r.gives(name)
		}
		if had && r.wildcard && name != wildcard {
			r.room.may[name] = true // WILD-8
		}
	}
	return m
}

// asks notes that a name is to be answered.
func (r *refusal) asks(name string) { r.owed[name], r.room.may[name] = true, true }

// gives notes that it is given up.
func (r *refusal) gives(name string) {
	delete(r.owed, name)
	delete(r.came, name)
	switch {
	case name == wildcard:
		for held := range r.room.holds {
			if !r.names[held] {
				r.room.gives(held)
			}
		}
	case !r.wildcard:
		r.room.gives(name)
		delete(r.room.stale, name)
	}
}

// toldRefused judges a response of one of these types, and reports whether it is of one.
func (g *Game) toldRefused(p *player, m proto.Message, at time.Time) bool {
	var url, nonce string
	var errors []*discovery.ResourceError
	var set, gone []string
	switch resp := m.(type) {
	case *discovery.DeltaDiscoveryResponse:
		url, nonce, errors, gone = resp.GetTypeUrl(), resp.GetNonce(), resp.GetResourceErrors(), resp.GetRemovedResources()
		for _, r := range resp.GetResources() {
			set = append(set, r.GetName())
		}
		if url == crowdedType || url == fullestType {
			g.learnRoom(resp)
		}
	case *discovery.DiscoveryResponse:
		url, nonce, errors = resp.GetTypeUrl(), resp.GetNonce(), resp.GetResourceErrors()
		for _, body := range resp.GetResources() {
			set = append(set, string(body.GetValue()))
		}
	}
	if url != refusedType && url != crowdedType && url != fullestType {
		return false
	}
	g.checker.now = at
	if p == nil || p.refused[url] == nil {
		g.checker.fail("NODE-14", "a client is told of a type that it has not asked for")
		return true
	}
	r := p.refused[url]
	r.nonce, r.room.told = nonce, at
	refused := slices.DeleteFunc(slices.Clone(errors), func(e *discovery.ResourceError) bool { return r.crowds() && e.GetErrorDetail().GetCode() == notFound })
	if len(refused) > 0 && r.keeps() {
		g.checker.fail("G4", "c%d came with a set of a type that is refused to it, and is sent one without it", p.id)
	}
	clear(r.came)
	for _, e := range refused {
		name, code := e.GetResourceName().GetName(), e.GetErrorDetail().GetCode()
		if want := int32(permissionDenied); !r.owed[name] || r.room.served || code != want && !(r.crowds() && code == resourceExhausted) {
			g.checker.fail("NODE-14", "c%d is told of %s, of a type that is refused to it, with %v, and awaits nothing or another status", p.id, name, e.GetErrorDetail())
		}
		delete(r.owed, name)
	}
	if len(refused) == 0 || len(set) > 0 || len(refused) < len(errors) {
		for _, e := range errors {
			gone = append(gone, e.GetResourceName().GetName())
		}
		g.served(p, r, set, gone)
	} else if len(gone) > 0 {
		g.served(p, r, nil, gone)
	} else if url == fullestType && p.sotw {
		clear(r.room.holds) // a set of nothing
	}
	return true
}

// keeps reports whether a client came with a full-state set, which one without it would take away.
func (r *refusal) keeps() bool { return r.url == fullestType && len(r.came) > 0 }

// owesRefused reports whether a client, which never acknowledges these types, was sent something of one
// within ack_timeout. Removals of other types may wait for that (ORDER-2).
func (p *player) owesRefused(now time.Time) bool {
	for _, r := range p.refused {
		if r.nonce != "" && now.Sub(r.room.told) <= ackTimeout {
			return true
		}
	}
	return false
}

// refusedKnown judges whether every name of these types has its answer.
func (g *Game) refusedKnown() {
	for _, p := range g.everybody() {
		if !p.open || p.deaf {
			continue
		}
		for _, r := range p.refused {
			g.roomKnown(p, r)
			for name := range r.owed {
				if spared := r.room.any && r.room.spared[name]; !spared && !r.keeps() && (!r.wildcard || r.room.served) {
					g.checker.fail("NODE-14", "c%d has had no answer for %s, of a type that is or was refused to it", p.id, name)
				}
			}
		}
	}
}
