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
	interest Interest
	nonce    string // of the last response
}

// wants reports whether a client asks for a name that exists.
func (r *refusal) wants(name string) bool {
	return slices.Contains(roomNames, name) && r.interest.Covers(name, nil)
}

// askRefused has a client ask for names of such a type, and give some up. brings: it comes with resources
// of it, if this is its first request.
func (g *Game) askRefused(p *player, url string, add, drop []string, brings bool) {
	if p.sotw { // it never asks for the wildcard
		add = beyond(add, []string{wildcard})
	}
	drop = beyond(drop, add)
	r, first := p.refused[url], p.refused[url] == nil
	drops := !first && !p.sotw && len(drop) > 0
	if idle := len(add) == 0 && !(drops && r.nonce != ""); idle || !p.open || !g.relay.Kills() { // a first request would ask for everything
		return
	}
	if first {
		r = &refusal{interest: newInterest()}
		p.refused[url] = r
	}
	var m proto.Message
	brings = brings && first && url != refusedType
	if p.sotw {
		r.interest.Replace(kind{}, add)
		req := &discovery.DiscoveryRequest{TypeUrl: url, ResourceNames: add, ResponseNonce: r.nonce, Node: p.node()}
		if brings {
			req.VersionInfo = foreign
		}
		m = req
	} else {
		r.interest.Delta(kind{}, add, drop)
		req := &discovery.DeltaDiscoveryRequest{TypeUrl: url, ResourceNamesSubscribe: add, ResourceNamesUnsubscribe: drop, Node: p.node()}
		if brings { // another version of one, one that does not exist, and, if any client was sent it, one as it is
			req.InitialResourceVersions = map[string]string{"a": "old", "zz": "old"}
			if version, known := g.roomVersions[url+" b"]; known {
				req.InitialResourceVersions["b"] = version
			}
		}
		m = req
	}
	g.log("c%d > %s", p.id, m)
	g.relay.Ask(p.id, m)
}

// response is what responses of both variants have in common.
type response interface {
	GetTypeUrl() string
	GetNonce() string
	GetResourceErrors() []*discovery.ResourceError
}

// toldRefused judges a response of one of these types: nothing of a refused type is sent, nor anything that was not
// asked for, and nothing that exists is taken away.
func (g *Game) toldRefused(p *player, resp response) {
	url := resp.GetTypeUrl()
	if p == nil || p.refused[url] == nil {
		g.checker.fail("G1", "a client is sent a type that it has not asked for")
		return
	}
	r := p.refused[url]
	r.nonce = resp.GetNonce()
	set := func(name string) {
		if url == refusedType || !r.wants(name) {
			g.checker.fail("G1", "c%d is sent %s of a type that is refused to it, or that it has not asked for", p.id, name)
		}
	}
	gone := func(name string) {
		if r.wants(name) {
			g.checker.fail("G4", "c%d is told that %s is gone", p.id, name)
		}
	}
	switch resp := resp.(type) {
	case *discovery.DeltaDiscoveryResponse:
		for _, resource := range resp.GetResources() {
			set(resource.GetName())
			g.roomVersions[url+" "+resource.GetName()] = resource.GetVersion()
		}
		for _, name := range resp.GetRemovedResources() {
			gone(name)
		}
	case *discovery.DiscoveryResponse:
		for _, body := range resp.GetResources() {
			set(string(body.GetValue()))
		}
	}
	for _, e := range resp.GetResourceErrors() {
		if e.GetErrorDetail().GetCode() == notFound {
			gone(e.GetResourceName().GetName())
		}
	}
}
