package twin

import (
	"slices"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
)

// Types that clients may not have (NODE-14): one that no client may have, and two for which there may be no
// room. Of these a to d exist, and nothing of them ever changes. This is played on the pure cores only: over
// gRPC, groups would have to be configured for it. Clients do not acknowledge these types.
const (
	refusedType = "type.googleapis.com/test.Refused"
	crowdedType = "type.googleapis.com/test.Crowded"
	fullestType = "type.googleapis.com/test.Fullest" // the same, full-state
)

// roomNames are those that exist.
var roomNames = poolNames[:4]

// refusal is what a client has asked for of one of these types, on its stream.
type refusal struct {
	url      string
	names    map[string]bool
	wildcard bool
	nonce    string // of the last response
}

// wants reports whether a client asks for a name that exists.
func (r *refusal) wants(name string) bool {
	return slices.Contains(roomNames, name) && (r.names[name] || r.wildcard)
}

// askRefused has a client ask for names of such a type, and give some up. brings: it comes with resources
// of it, if this is its first request.
func (g *Game) askRefused(p *player, url string, add, drop []string, brings bool) {
	if p.sotw { // it never asks for the wildcard
		add = slices.DeleteFunc(slices.Clone(add), func(name string) bool { return name == wildcard })
	}
	if !p.open || !g.relay.Kills() || p.sotw && len(add) == 0 {
		return
	}
	r, first := p.refused[url], p.refused[url] == nil
	if first {
		r = &refusal{url: url, names: map[string]bool{}}
	}
	if first && len(add) == 0 {
		return // a first request that names nothing asks for everything
	}
	brings = brings && first && url != refusedType
	var m proto.Message
	if p.sotw {
		m = r.sotw(p, add, brings)
	} else {
		drop = slices.DeleteFunc(slices.Clone(drop), func(name string) bool { return slices.Contains(add, name) })
		if len(add)+len(drop) == 0 || len(add) == 0 && r.nonce == "" {
			return
		}
		m = r.delta(p, add, drop, brings, g.roomVersions)
	}
	p.refused[url] = r
	g.log("c%d > %s", p.id, m)
	g.relay.Ask(p.id, m)
}

func (r *refusal) sotw(p *player, add []string, brings bool) proto.Message {
	clear(r.names)
	for _, name := range add {
		r.names[name] = true
	}
	m := &discovery.DiscoveryRequest{TypeUrl: r.url, ResourceNames: add, ResponseNonce: r.nonce, Node: p.node()}
	if brings {
		m.VersionInfo = foreign
	}
	return m
}

func (r *refusal) delta(p *player, add, drop []string, brings bool, versions map[string]string) proto.Message {
	m := &discovery.DeltaDiscoveryRequest{TypeUrl: r.url, ResourceNamesSubscribe: add, ResourceNamesUnsubscribe: drop, Node: p.node()}
	if brings { // another version of one, one that does not exist, and, if any client was sent it, one as it is
		m.InitialResourceVersions = map[string]string{"a": "old", "zz": "old"}
		if version, known := versions[r.url+" b"]; known {
			m.InitialResourceVersions["b"] = version
		}
	}
	for _, name := range add {
		r.names[name] = name != wildcard
		r.wildcard = r.wildcard || name == wildcard
	}
	for _, name := range drop {
		delete(r.names, name)
		r.wildcard = r.wildcard && name != wildcard
	}
	return m
}

// toldRefused judges a response of one of these types, and reports whether it is of one: nothing of a refused type is
// sent, nor anything that was not asked for, and nothing that exists is taken away.
func (g *Game) toldRefused(p *player, m proto.Message) bool {
	var url, nonce string
	var set, gone []string
	denies := func(errors []*discovery.ResourceError) {
		for _, e := range errors {
			if e.GetErrorDetail().GetCode() == notFound {
				gone = append(gone, e.GetResourceName().GetName())
			}
		}
	}
	switch resp := m.(type) {
	case *discovery.DeltaDiscoveryResponse:
		url, nonce, gone = resp.GetTypeUrl(), resp.GetNonce(), slices.Clone(resp.GetRemovedResources())
		for _, r := range resp.GetResources() {
			set = append(set, r.GetName())
			g.roomVersions[url+" "+r.GetName()] = r.GetVersion()
		}
		denies(resp.GetResourceErrors())
	case *discovery.DiscoveryResponse:
		url, nonce = resp.GetTypeUrl(), resp.GetNonce()
		for _, body := range resp.GetResources() {
			set = append(set, string(body.GetValue()))
		}
		denies(resp.GetResourceErrors())
	}
	if url != refusedType && url != crowdedType && url != fullestType {
		return false
	}
	if p == nil || p.refused[url] == nil {
		g.checker.fail("G1", "a client is sent a type that it has not asked for")
		return true
	}
	r := p.refused[url]
	r.nonce = nonce
	for _, name := range set {
		if url == refusedType || !r.wants(name) {
			g.checker.fail("G1", "c%d is sent %s of a type that is refused to it, or that it has not asked for", p.id, name)
		}
	}
	for _, name := range gone {
		if r.wants(name) {
			g.checker.fail("G4", "c%d is told that %s is gone", p.id, name)
		}
	}
	return true
}
