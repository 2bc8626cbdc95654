package twin

import (
	"fmt"
	"maps"
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
)

// Relay is what is played against: the pure cores, or a relay over gRPC. What it
// says it tells the Game, which it is given when it starts.
type Relay interface {
	Now() time.Time
	// Of clients.
	Open(client int, sotw bool)
	Ask(client int, m proto.Message)
	Close(client int)
	Deaf(client int, deaf bool)
	// Of the control plane.
	Answer(stream int, m proto.Message)
	End(stream int, how int)
	Down(down bool)
	// Of the relay.
	Settle()
	Wait(d time.Duration)
	Restart()
	// Save writes the relay's snapshot; Kills tells whether it can end without.
	Save()
	Kills() bool
	Hold(hold bool)
	Step(n int)
}

// The settings that do not vary, and what names there are.
const (
	missingAfter    = 15 * time.Second
	missingExplicit = 30 * time.Second
	ackTimeout      = 10 * time.Second
	settleCap       = 5 * time.Second
)

// Resources are named a to d; x and y are aliases, which may move, and may be asked
// for like any name. That a name is an alias and a resource too is left to the
// transcripts.
var (
	poolNames   = []string{"a", "b", "c", "d", "x", "y"}
	poolAliases = poolNames[4:]
)

// Game is one script being played.
type Game struct {
	relay    Relay
	plane    *controlPlane
	checker  *Checker
	players  map[int]*player
	snapshot bool  // the relay keeps one on disk
	open     []int // streams to the control plane, oldest first
	trace    func(string)
}

func newGame(s Settings, trace func(string)) *Game {
	plane := newControlPlane()
	return &Game{plane: plane, checker: newChecker(s, plane.bodies), snapshot: s.Snapshot, players: map[int]*player{}, trace: trace}
}

func (g *Game) log(format string, a ...any) {
	if g.trace != nil {
		g.trace(fmt.Sprintf(format, a...))
	}
}

// failed: a violation has been seen.
func (g *Game) failed() bool { return len(g.checker.Violations) > 0 }

// Play plays a script to its end. It returns what is wrong, or nothing.
func (g *Game) Play(relay Relay, ops []Op) []string {
	g.relay = relay
	relay.Settle()
	for _, o := range ops {
		g.log("--- %v", o)
		g.play(o)
		g.act()
		if g.failed() {
			return g.checker.Violations
		}
	}
	g.finish()
	return g.checker.Violations
}

// act lets everybody do what they do by themselves.
func (g *Game) act() {
	g.relay.Settle()
	for range 100 {
		busy := g.plane.habits&eager != 0 && g.serve()
		for _, p := range g.everybody() {
			for _, k := range kinds {
				busy = p.auto && g.judge(p, k, false) || busy
			}
		}
		if !busy || g.failed() {
			return
		}
		g.relay.Settle()
	}
	g.checker.fail("quiet", "relay, control plane and clients do not fall quiet")
}

func (g *Game) everybody() (all []*player) {
	for _, id := range slices.Sorted(maps.Keys(g.players)) {
		all = append(all, g.players[id])
	}
	return all
}

func (g *Game) play(o Op) {
	k, _ := named(o.Kind)
	switch o.Verb {
	case "set":
		if len(o.Add) > 0 {
			g.plane.set(k, o.Add[0], slices.DeleteFunc(o.Add[1:], func(alias string) bool { return alias == o.Add[0] }))
		}
	case "remove":
		for _, name := range o.Add {
			delete(g.plane.world[k.name], name)
		}
	case "version":
		for _, name := range o.Add {
			g.plane.reversion(k, name)
		}
	case "wipe":
		clear(g.plane.world[k.name])
	case "habit":
		g.plane.habits = habits(o.N)
		g.checker.uncertain = g.checker.uncertain || g.plane.habits&poison != 0
	case "push", "again", "bad", "error", "extra", "end":
		g.playStream(o, k)
	case "down", "up":
		g.relay.Down(o.Verb == "down")
	case "wait":
		g.wait(time.Duration(o.N) * time.Millisecond)
	case "save":
		g.save()
	case "restart":
		g.restart(o.N != 0 && g.relay.Kills())
	case "hold":
		g.relay.Hold(true)
	case "go":
		if o.N == 0 {
			g.relay.Hold(false)
		} else {
			g.relay.Step(o.N)
		}
	default:
		g.playClient(o, k)
	}
}

// playStream is what the control plane does on one stream.
func (g *Game) playStream(o Op, k kind) {
	if len(g.open) == 0 {
		return
	}
	id := g.open[o.Who%len(g.open)]
	s := g.plane.streams[id]
	switch o.Verb {
	case "again":
		g.plane.again(s, k)
		g.push(id, k, 0, false)
	case "push", "bad":
		if o.N&32 == 0 && g.plane.read(s) {
			g.log("up%d > refuses", id)
			g.refuse(id)
			return
		}
		g.push(id, k, o.N&31, o.Verb == "bad")
	case "error":
		g.plane.erred = true
		resp := &discovery.DeltaDiscoveryResponse{TypeUrl: k.url, Nonce: fmt.Sprintf("n%d", g.plane.next())}
		for _, name := range o.Add {
			resp.ResourceErrors = append(resp.ResourceErrors, &discovery.ResourceError{
				ResourceName: &discovery.ResourceName{Name: name}, ErrorDetail: &statuspb.Status{Code: 14, Message: "later"},
			})
		}
		g.answer(id, resp, false)
	case "extra":
		if g.plane.read(s) {
			g.refuse(id)
			return
		}
		resp := &discovery.DeltaDiscoveryResponse{TypeUrl: k.url, Nonce: fmt.Sprintf("n%d", g.plane.next())}
		for _, name := range o.Add {
			if _, ok := g.plane.world[k.name][name]; ok && s.lanes[k.name] != nil && !slices.ContainsFunc(resp.Resources, func(r *discovery.Resource) bool { return r.GetName() == name }) {
				resp.Resources = append(resp.Resources, g.plane.wire(k, name))
				s.lanes[k.name].noteSent(name, g.plane.world[k.name][name])
			}
		}
		g.answer(id, resp, false)
	case "end":
		g.log("up%d > end %d", id, o.N)
		g.checker.now = g.relay.Now()
		g.checker.upEnds(id)
		g.relay.End(id, o.N%3)
	}
}

// push says what there is to say of a type on a stream; true if there was anything.
func (g *Game) push(id int, k kind, pieces int, bad bool) bool {
	resp := g.plane.push(g.plane.streams[id], k, pieces)
	if resp == nil {
		return false
	}
	if bad = bad && len(resp.Resources) > 0 && g.plane.streams[id].sotw == nil; bad {
		resp.Resources = append(resp.Resources, proto.Clone(resp.Resources[0]).(*discovery.Resource)) // ERR-11
	}
	g.answer(id, resp, bad)
	return true
}

func (g *Game) answer(id int, resp *discovery.DeltaDiscoveryResponse, bad bool) {
	var said proto.Message = resp
	if s := g.plane.streams[id]; s != nil && s.sotw != nil {
		whole, means := g.sotwAnswer(s, resp)
		if whole == nil {
			return
		}
		said, resp, bad = whole, means, false
	}
	g.log("up%d > %s", id, text(resp))
	g.checker.now = g.relay.Now()
	g.checker.upSaid(id, resp, bad)
	g.relay.Answer(id, said)
}

// serve lets the control plane read everything and say everything.
func (g *Game) serve() (busy bool) {
	for _, id := range slices.Clone(g.open) {
		s := g.plane.streams[id]
		if s == nil {
			continue
		}
		if g.plane.read(s) {
			g.refuse(id)
			return true
		}
		for _, k := range kinds {
			if g.plane.streams[id] == s {
				busy = g.push(id, k, 0, false) || busy
			}
		}
	}
	return busy
}

// playClient is what one client does.
func (g *Game) playClient(o Op, k kind) {
	p := g.players[o.Who]
	if p == nil {
		p = newPlayer(o.Who)
		g.players[o.Who] = p
	}
	g.checker.now = g.relay.Now()
	switch o.Verb {
	case "open":
		if !p.open && len(p.wants) == 0 {
			p.sotw, p.auto = o.N&1 != 0, o.N&2 != 0
			g.openStream(p, 0)
		}
	case "sub":
		g.subscribe(p, k, o.Add, o.Drop)
	case "ack", "nack":
		g.judge(p, k, o.Verb == "nack")
	case "acks":
		g.ackAll(p)
	case "close":
		g.hangUp(p)
		g.checker.forgotten(p.id)
		delete(g.players, p.id)
	case "reconnect":
		g.hangUp(p)
		g.openStream(p, o.N%4)
	case "deaf":
		g.relay.Deaf(p.id, o.N != 0)
	}
}

func (g *Game) ackAll(p *player) (busy bool) {
	for _, k := range kinds {
		for g.judge(p, k, false) {
			busy = true
		}
	}
	return busy
}

func (g *Game) hangUp(p *player) {
	if p.open {
		g.log("c%d > close", p.id)
		p.open = false
		g.checker.clientClosed(p.id)
		g.relay.Close(p.id)
	}
}

// wait lets time pass. A control plane that is eager answers meanwhile.
func (g *Game) wait(d time.Duration) {
	const beat = 500 * time.Millisecond
	for d > 0 && !g.failed() {
		step := d
		if g.plane.habits&eager != 0 {
			step = min(d, beat)
		}
		g.relay.Wait(step)
		g.checker.now = g.relay.Now()
		g.checker.settled()
		d -= step
		if d > 0 {
			g.act()
		}
	}
}

// --- what the relay says ---

// StreamOpened: the relay has a stream to the control plane.
func (g *Game) StreamOpened(id int, sotw bool, at time.Time) {
	g.log("up%d < open sotw=%v", id, sotw)
	g.checker.now = at
	g.checker.upOpened(id, sotw)
	g.plane.streams[id] = &serverStream{lanes: map[string]*serverLane{}}
	if sotw {
		g.plane.streams[id].sotw = map[string]*sotwLane{}
	}
	g.open = append(g.open, id)
}

// StreamClosed: it has it no more.
func (g *Game) StreamClosed(id int, at time.Time) {
	g.log("up%d < closed", id)
	g.checker.now = at
	g.checker.upClosed(id)
	delete(g.plane.streams, id)
	g.open = slices.DeleteFunc(g.open, func(o int) bool { return o == id })
}

// Asked is a request of the relay's.
func (g *Game) Asked(id int, m proto.Message, at time.Time) {
	g.log("up%d < %s", id, text(m))
	g.checker.now = at
	s := g.plane.streams[id]
	var said []*discovery.DeltaDiscoveryRequest
	switch req := m.(type) {
	case *discovery.DeltaDiscoveryRequest:
		said = append(said, req)
	case *discovery.DiscoveryRequest:
		said = s.sotwAsked(req)
	}
	for _, req := range said {
		g.checker.upAsked(id, req)
		if s != nil {
			s.inbox = append(s.inbox, req)
		}
	}
}

// Told is a response to a client.
func (g *Game) Told(client int, m proto.Message, at time.Time) {
	g.log("c%d < %s", client, text(m))
	g.checker.now = at
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

// Ended: the relay has ended a client's stream. unavailable: because the control
// plane does not answer, which alone is a reason, and is none if the client can be told
// in a response (ERR-7).
func (g *Game) Ended(client int, unavailable bool, message string, at time.Time) {
	g.log("c%d < end %s", client, message)
	g.checker.now = at
	if !unavailable {
		g.checker.fail("ERR-7", "c%d: the relay ends the stream: %s", client, message)
	}
	if p := g.players[client]; p != nil && p.open {
		if told := len(g.checker.clients[client].nonces) > 0; p.sotw && p.agent() == "Twin" || !p.sotw && told {
			g.checker.fail("ERR-7", "c%d: the relay ends the stream of a client that reads errors: %s", client, message)
		}
		p.open = false
		g.checker.clientClosed(client)
	}
}

// --- the end ---

// finish brings everything to rest, and judges.
func (g *Game) finish() {
	g.relay.Hold(false)
	for _, p := range g.everybody() {
		g.relay.Deaf(p.id, false)
	}
	g.relay.Settle()
	g.log("--- what the relay knows the clients know, ACK or not")
	g.relay.Wait(3 * ackTimeout) // an error prolongs it
	g.checker.now = g.relay.Now()
	if g.checker.Known(); g.failed() {
		return
	}
	if g.rest(); !g.failed() {
		g.checker.Known()
	}
	if g.failed() {
		return
	}
	g.log("--- all becomes quiet")
	poisoned := g.plane.habits&poison != 0
	g.plane.habits = g.plane.habits&^poison | eager
	if g.plane.erred {
		g.plane.habits &^= silent // an error is no answer (ERR-8)
		g.plane.owe()
	}
	g.relay.Down(false)
	waits := []time.Duration{time.Second, 31 * time.Second, time.Second, 16 * time.Second, 31 * time.Second, time.Second}
	if poisoned {
		waits = append(waits, 2*time.Minute)
	}
	for _, d := range waits {
		for _, p := range g.everybody() {
			if !p.open {
				g.openStream(p, 0)
			}
		}
		g.act()
		g.rest()
		g.wait(d)
		g.act()
		g.rest()
		if g.failed() {
			return
		}
	}
	g.checker.now = g.relay.Now()
	g.checker.Finish(g.plane.world)
	if g.failed() {
		return
	}
	g.log("--- everybody leaves")
	for _, p := range g.everybody() {
		g.hangUp(p)
	}
	g.act()
	g.wait(100 * time.Second)
	g.checker.Finish(g.plane.world)
}

// rest lets the clients ACK until they have nothing left to ACK.
func (g *Game) rest() {
	for range 100 {
		busy := false
		for _, p := range g.everybody() {
			busy = g.ackAll(p) || busy
		}
		if !busy || g.failed() {
			return
		}
		g.relay.Settle()
		g.act()
	}
	g.checker.fail("quiet", "the clients do not come to rest")
}
