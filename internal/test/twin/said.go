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
		g.checker.upOpened(id, plane, sotw)
	}
	s := &serverStream{lanes: map[string]*serverLane{}, probe: probe, erred: map[string][]string{}}
	if sotw {
		s.sotw = map[string]*sotwLane{}
	}
	g.planes[plane].streams[id] = s
	g.open = append(g.open, id)
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
		g.checker.fail("UP-3", "a request on stream %d, which has ended", id)
		return
	}
	var said []*discovery.DeltaDiscoveryRequest
	switch req := m.(type) {
	case *discovery.DeltaDiscoveryRequest:
		said = append(said, req)
	case *discovery.DiscoveryRequest:
		said = s.sotwAsked(req)
	}
	for _, req := range said {
		if !s.probe {
			g.checker.upAsked(id, req)
		}
		s.inbox = append(s.inbox, req)
	}
}

// Told is a response to a client.
func (g *Game) Told(client int, m proto.Message, at time.Time) {
	g.log("c%d < %s", client, m)
	g.checker.now = at
	if g.toldRefused(g.players[client], m, at) {
		return
	}
	switch resp := m.(type) {
	case *discovery.DeltaDiscoveryResponse:
		g.checker.clientTold(client, resp)
	case *discovery.DiscoveryResponse:
		g.checker.clientToldSotW(client, resp)
		if k, ok := named(resp.GetTypeUrl()); ok {
			p := g.players[client]
			p.last[k.name], p.has[k.name] = resp.GetNonce(), resp.GetVersionInfo()
		}
	}
}

// Ended: the relay has ended a client's stream. It may only do so because the control plane does not
// answer (unavailable), and not if the client reads errors in responses and was sent something (ERR-7).
func (g *Game) Ended(client int, unavailable bool, message string, at time.Time) {
	g.log("c%d < end %s", client, message)
	g.checker.now = at
	if !unavailable {
		g.checker.fail("ERR-7", "c%d: the relay ends the stream: %s", client, message)
	}
	if p := g.players[client]; p != nil && p.open {
		if cl := g.checker.clients[client]; cl.carried && !cl.leaves {
			g.checker.fail("ERR-7", "c%d: the relay ends the stream of a client that reads errors and was sent something: %s", client, message)
		}
		p.open = false
		g.checker.hurried(client, false)
		g.checker.clientClosed(client)
	}
}
