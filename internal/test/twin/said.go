package twin

import (
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
)

// What the relay says.

// StreamOpened: the relay has a stream to a control plane. probe: it only tries whether
// that answers (UP-14).
func (g *Game) StreamOpened(id, plane int, probe, sotw bool, at time.Time) {
	g.log("up%d < open plane=%d probe=%v sotw=%v", id, plane, probe, sotw)
	g.checker.now = at
	if !probe {
		g.checker.upOpened(id, plane)
	}
	s := &serverStream{lanes: map[string]*serverLane{}, probe: probe, erred: map[string][]string{}}
	if sotw {
		s.sotw = map[string]*sotwLane{}
	}
	g.planes[plane].streams[id] = s
	g.open = append(g.open, id)
	g.opened = at
}

// StreamClosed: the relay has a stream no more.
func (g *Game) StreamClosed(id int, at time.Time) {
	g.log("up%d < closed", id)
	g.checker.now = at
	g.checker.upClosed(id)
	for _, p := range g.planes {
		delete(p.streams, id)
	}
	g.open = slices.DeleteFunc(g.open, func(o int) bool { return o == id })
}

// Asked is a request of the relay's.
func (g *Game) Asked(id int, m proto.Message, at time.Time) {
	g.log("up%d < %s", id, m)
	g.checker.now = at
	_, s := g.server(id)
	if s == nil {
		return // it has ended
	}
	var said []*discovery.DeltaDiscoveryRequest
	switch req := m.(type) {
	case *discovery.DeltaDiscoveryRequest:
		said = append(said, req)
	case *discovery.DiscoveryRequest:
		said = s.sotwAsked(req)
	}
	for _, req := range said {
		g.checker.upAsked(id, req)
		s.inbox = append(s.inbox, req)
	}
}

// Told is a response to a client.
func (g *Game) Told(client int, m proto.Message, at time.Time) {
	g.log("c%d < %s", client, m)
	g.checker.now = at
	if r := m.(response); slices.Contains([]string{refusedType, crowdedType, fullestType}, r.GetTypeUrl()) {
		g.toldRefused(g.players[client], r)
		return
	}
	switch resp := m.(type) {
	case *discovery.DeltaDiscoveryResponse:
		g.checker.clientTold(client, resp)
	case *discovery.DiscoveryResponse:
		g.checker.clientToldSotW(client, resp)
		if k := kindOf(resp.GetTypeUrl()); k.name != "" {
			p := g.players[client]
			p.last[k.name], p.has[k.name] = resp.GetNonce(), resp.GetVersionInfo()
		}
	}
}

// Ended: the relay has ended a client's stream. It may only do so (unavailable) because the control plane does not
// answer, or there was no room for a type (NODE-14), or because it ends itself.
func (g *Game) Ended(client int, unavailable bool, message string, at time.Time) {
	g.log("c%d < end %s", client, message)
	g.checker.now = at
	if !unavailable {
		g.checker.fail("ERR-7", "c%d: the relay ends the stream: %s", client, message)
	}
	if p := g.players[client]; p != nil && p.open {
		p.open = false
		g.checker.clientClosed(client)
	}
}
