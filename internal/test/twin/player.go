package twin

import (
	"fmt"
	"maps"
	"slices"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
)

// player is an honest client: it asks for what it wants, says what it holds, and
// ACKs or NACKs what it was sent. What it holds the Checker keeps (clientState).
type player struct {
	id     int
	sotw   bool
	auto   bool // ACKs by itself
	open   bool
	deaf   bool // does not read
	spoken bool // on this stream
	// refused is what it has asked for, on this stream, of types that it may not have, by URL.
	refused map[string]*refusal
	wants   map[string]Interest
	before  map[string]map[string]held // what it held at an earlier reconnect
	last    map[string]string          // SotW: the last nonce, by kind
	has     map[string]string          // SotW: the version of what it holds, by kind; "": the relay made none
}

// foreign is the label of what a client comes with that no control plane of the game has ever had.
const foreign = "foreign"

func newPlayer(id int) *player {
	return &player{id: id, wants: map[string]Interest{}, before: map[string]map[string]held{}, has: map[string]string{}}
}

// node goes with the first request of a stream.
func (p *player) node() *core.Node {
	if p.spoken {
		return nil
	}
	p.spoken = true
	node := &core.Node{Id: fmt.Sprintf("c%d", p.id), UserAgentName: p.agent()}
	if p.takesTTL() {
		node.ClientFeatures = ttlFeatures
	}
	return node
}

// agent: every other client is one of gRPC's, which counts with SotW (ERR-7).
func (p *player) agent() string {
	if p.id%2 == 1 {
		return "gRPC Twin"
	}
	return "Twin"
}

// openStream opens a stream and says what the client wanted on the last one.
func (g *Game) openStream(p *player, n int) {
	p.deaf = false
	p.refused = map[string]*refusal{}
	p.open, p.spoken, p.last = true, false, map[string]string{}
	g.log("c%d > open sotw=%v", p.id, p.sotw)
	g.checker.clientOpened(p.id, p.sotw, p.takesTTL(), p.agent() != "Twin")
	g.relay.Open(p.id, p.sotw)
	for _, k := range kinds {
		if want, ok := p.wants[k.name]; ok && p.open {
			g.restate(p, k, want, n)
		}
	}
}

// restate is a type's first request on a new stream.
func (g *Game) restate(p *player, k kind, want Interest, n int) {
	t := g.checker.clients[p.id].topic(k.name)
	earlier := maps.Clone(t.holds)
	if n != 0 {
		p.has[k.name] = ""
	}
	switch n {
	case 1:
		t.holds = maps.Clone(p.before[k.name])
	case 2:
		for name := range t.holds {
			t.holds[name] = held{label: foreign, version: "f" + name, at: g.checker.events}
		}
		if !p.sotw {
			t.holds["zz"] = held{label: foreign, version: "fzz", at: g.checker.events}
		}
	case 3:
		clear(t.holds)
	}
	if t.holds == nil {
		t.holds = map[string]held{}
	}
	p.before[k.name] = earlier
	if want.Empty() {
		clear(t.holds)
		delete(p.wants, k.name)
		return
	}
	maps.DeleteFunc(t.holds, func(_ string, h held) bool { return !h.ends.IsZero() && !h.ends.After(g.relay.Now()) })
	maps.DeleteFunc(t.holds, func(name string, h held) bool { return h.label != foreign && !want.Covers(name, h.aliases) })
	names := slices.Sorted(maps.Keys(want.Names))
	if want.Wildcard && (len(names) > 0 || !k.empty || !want.legacy) {
		names = append(names, wildcard)
	}
	if p.sotw {
		req := &discovery.DiscoveryRequest{TypeUrl: k.url, ResourceNames: names, Node: p.node()}
		if len(t.holds) > 0 {
			if req.VersionInfo = "9"; n == 0 && p.has[k.name] != "" {
				req.VersionInfo = p.has[k.name]
			}
		}
		g.ask(p, k, req)
		return
	}
	req := &discovery.DeltaDiscoveryRequest{TypeUrl: k.url, ResourceNamesSubscribe: names, Node: p.node()}
	if len(t.holds) > 0 {
		req.InitialResourceVersions = map[string]string{}
		for name, h := range t.holds {
			req.InitialResourceVersions[name] = h.version
		}
	}
	g.ask(p, k, req)
}

// subscribe changes what a client wants of a type.
func (g *Game) subscribe(p *player, k kind, add, drop []string) {
	if !p.open {
		g.openStream(p, 0)
	}
	if !p.open {
		return
	}
	if p.sotw {
		req := &discovery.DiscoveryRequest{TypeUrl: k.url, ResourceNames: add, ResponseNonce: p.last[k.name], Node: p.node()}
		if p.last[k.name] != "" {
			req.VersionInfo = "9"
		}
		if len(drop) > 0 {
			req.ResponseNonce = "stale" // names count all the same (DOWN-SOTW-2)
		}
		g.ask(p, k, req)
		return
	}
	// What the client came with and still wants by an alias it does not give up by name (DOWN-DELTA-16).
	t := g.checker.clients[p.id].topic(k.name)
	drop = slices.DeleteFunc(slices.Clone(drop), func(name string) bool {
		if !t.brought[name] {
			return false
		}
		wants := t.interest.clone()
		delete(wants.Names, name)
		return wants.Named(name, t.holds[name].aliases)
	})
	g.ask(p, k, &discovery.DeltaDiscoveryRequest{
		TypeUrl: k.url, ResourceNamesSubscribe: add, ResourceNamesUnsubscribe: drop, Node: p.node(),
	})
}

// judge ACKs or NACKs a response of a type, if one waits for it: a Delta client the
// oldest, a SotW client the latest, which stands for all before it.
func (g *Game) judge(p *player, k kind, nack bool) bool {
	cl := g.checker.clients[p.id]
	if !p.open || cl == nil || cl.topics[k.name] == nil || len(cl.topics[k.name].unacked) == 0 {
		return false
	}
	t := cl.topics[k.name]
	nonce := t.unacked[0]
	var detail *statuspb.Status
	if nack {
		p.has[k.name] = "" // of the version before, for all we know
		detail = &statuspb.Status{Code: 3, Message: "no"}
	}
	if !p.sotw {
		g.ask(p, k, &discovery.DeltaDiscoveryRequest{TypeUrl: k.url, ResponseNonce: nonce, ErrorDetail: detail})
		return true
	}
	nonce = t.unacked[len(t.unacked)-1]
	names := slices.Sorted(maps.Keys(t.interest.Names))
	if t.interest.Wildcard && !t.interest.legacy {
		names = append(names, wildcard)
	}
	g.ask(p, k, &discovery.DiscoveryRequest{TypeUrl: k.url, ResourceNames: names, VersionInfo: "9", ResponseNonce: nonce, ErrorDetail: detail})
	return true
}

// ask sends a request, the Checker reading along.
func (g *Game) ask(p *player, k kind, m proto.Message) {
	g.log("c%d > %s", p.id, m)
	g.checker.heard()
	switch req := m.(type) {
	case *discovery.DeltaDiscoveryRequest:
		g.checker.clientAsked(p.id, req)
	case *discovery.DiscoveryRequest:
		g.checker.clientAskedSotW(p.id, req)
	}
	p.wants[k.name] = g.checker.clients[p.id].topics[k.name].interest.clone()
	g.relay.Ask(p.id, m)
}
