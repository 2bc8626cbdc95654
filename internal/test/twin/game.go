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
	// Of the control planes, by number.
	Answer(stream int, m proto.Message)
	End(stream int, how int)
	Down(plane int, down bool)
	// Hang stops a control plane, and lets it go on: its connections stay, and what it is
	// asked meanwhile it hears then.
	Hang(plane int, hung bool)
	// Of the relay.
	Settle()
	Wait(d time.Duration)
	Restart()
	// Save writes the relay's snapshot; Kills tells whether it can end without.
	Save()
	Kills() bool
	Hold(hold bool)
	Step(n int)
	// Room says whether there is room for types of which there may be none (NODE-14).
	Room(room bool)
}

// The settings that do not vary.
const (
	missingAfter    = 15 * time.Second
	missingExplicit = 30 * time.Second
	ackTimeout      = 10 * time.Second
	warmingHold     = 5 * time.Second
)

// Game is one script being played.
type Game struct {
	relay    Relay
	planes   []*controlPlane // in the order in which the relay prefers them
	checker  *Checker
	players  map[int]*player
	spoil    bool      // what is said next in SotW cannot be read
	held     bool      // the relay does nothing by itself
	snapshot bool      // the relay keeps one on disk
	open     []int     // streams to the control planes, oldest first
	opened   time.Time // the last of them
	trace    func(string)

	roomVersions map[string]string // of what they have, by URL and name
}

func newGame(s Settings, trace func(string)) *Game {
	planes := []*controlPlane{newControlPlane(s.Server)}
	g := &Game{planes: planes, snapshot: s.Snapshot, players: map[int]*player{}, trace: trace, roomVersions: map[string]string{}}
	planes[0].strict, planes[0].large = s.Bounded("least"), s.Large
	planes[0].now = func() time.Time { return g.relay.Now() }
	if s.Second != "" {
		g.planes = append(planes, planes[0].second(s.Second == "same"))
	}
	g.checker = newChecker(s, g.planes)
	return g
}

// plane is the control plane that an operation is about.
func (g *Game) plane(o Op) *controlPlane { return g.planes[o.Who%len(g.planes)] }

// server is the control plane's end of a stream, and whose it is; nil: it has ended.
func (g *Game) server(id int) (*controlPlane, *serverStream) {
	for _, p := range g.planes {
		if s := p.streams[id]; s != nil {
			return p, s
		}
	}
	return nil, nil
}

func (g *Game) log(format string, a ...any) {
	if g.trace == nil {
		return
	}
	for i, v := range a {
		if m, ok := v.(proto.Message); ok {
			a[i] = text(m)
		}
	}
	g.trace(fmt.Sprintf(format, a...))
}

// failed: a violation has been seen, or what excuses one.
func (g *Game) failed() bool { return len(g.checker.Violations) > 0 }

// Play plays a script to its end.
func (g *Game) Play(relay Relay, ops []Op) {
	g.relay = relay
	relay.Settle()
	for _, o := range ops {
		g.log("--- %v", o)
		g.play(o)
		g.act()
		if g.failed() {
			return
		}
	}
	g.finish()
}

// rounds are as many as may pass before all is quiet: over gRPC a group of many names may be sent one
// in each response, which another group bounds.
const rounds = 400

// act lets everybody do what they do by themselves.
func (g *Game) act() {
	g.relay.Settle()
	defer g.rested()
	for range rounds {
		busy := g.serve()
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

// stir lets the control planes look whether there is more to say.
func (g *Game) stir() {
	for _, p := range g.planes {
		p.changes++
	}
}

// rested notes that the relay has nothing left to do for who reads, if it is not held still.
func (g *Game) rested() {
	for _, p := range g.everybody() {
		if !p.deaf && !g.held {
			g.checker.rested(p.id)
		}
	}
}

func (g *Game) everybody() (all []*player) {
	for _, id := range slices.Sorted(maps.Keys(g.players)) {
		all = append(all, g.players[id])
	}
	return all
}

func (g *Game) play(o Op) {
	k := kindOf(o.Kind)
	plane := g.plane(o)
	g.stir()
	before := maps.Clone(plane.world[k.name])
	switch o.Verb {
	case "set":
		if len(o.Add) > 0 {
			plane.set(k, o.Add[0], slices.DeleteFunc(o.Add[1:], func(alias string) bool { return alias == o.Add[0] }))
		}
	case "many":
		for _, name := range o.names() {
			plane.set(k, name, nil)
		}
		for _, p := range g.planes {
			if all := slices.Concat(poolNames, o.names()); len(all) > len(p.names) {
				p.names = all
			}
		}
	case "remove", "few":
		for _, name := range o.names() {
			delete(plane.world[k.name], name)
		}
	case "version":
		for _, name := range o.Add {
			plane.reversion(k, name)
		}
	case "ttl":
		plane.setTTL(k, o.Add, time.Duration(o.N)*time.Millisecond)
	case "wipe":
		clear(plane.world[k.name])
	case "habit":
		for _, p := range g.planes {
			p.habits = habits(o.N)
		}
	case "push", "again", "bad", "fault", "error", "extra", "beat", "end":
		g.playStream(o, k)
	case "down", "up":
		g.setDown(plane, o.Verb == "down")
	case "hang", "wake":
		g.hang(plane, o.Verb == "hang")
	case "wait":
		g.wait(time.Duration(o.N) * time.Millisecond)
	case "save":
		g.save()
	case "room":
		g.relay.Room(o.N != 0)
	case "restart":
		g.restart(o.N != 0 && g.relay.Kills())
	case "hold":
		g.held = true
		g.relay.Hold(true)
	case "go":
		if o.N == 0 {
			g.held = false
			g.relay.Hold(false)
		} else {
			g.relay.Step(o.N)
		}
	default:
		g.playClient(o, k)
	}
	if slices.Contains([]string{"set", "remove", "wipe", "many", "few"}, o.Verb) {
		g.checker.worldChanged(k, before, plane.world[k.name])
	}
}

// playStream is what the control plane does on one stream.
func (g *Game) playStream(o Op, k kind) {
	if len(g.open) == 0 {
		return
	}
	id := g.open[o.Who%len(g.open)]
	plane, s := g.server(id)
	if plane.hung {
		return
	}
	if reads := []string{"push", "bad", "fault", "beat", "extra"}; slices.Contains(reads, o.Verb) && o.N&32 == 0 && plane.read(s) {
		g.refuse(id)
		return
	}
	l := s.lanes[k.name]
	switch o.Verb {
	case "again":
		plane.again(s, k)
		g.say(id, k, 0, noFault)
	case "push":
		g.say(id, k, o.N&31, noFault)
	case "bad":
		g.say(id, k, o.N&31, faultRepeats)
	case "fault":
		g.say(id, k, o.N&31, o.N>>6%faultKinds)
	case "error":
		plane.erred = true
		resp := &discovery.DeltaDiscoveryResponse{TypeUrl: k.url, Nonce: plane.nonce(k, l)}
		s.erred[k.name] = append(s.erred[k.name], o.Add...)
		for _, name := range o.Add {
			resp.ResourceErrors = append(resp.ResourceErrors, &discovery.ResourceError{
				ResourceName: &discovery.ResourceName{Name: name}, ErrorDetail: &statuspb.Status{Code: 14, Message: errorLater},
			})
		}
		g.answer(id, resp)
	case "beat":
		if l != nil && s.sotw == nil {
			if renewed := plane.heartbeats(l, k, o.Add, o.N != 0); len(renewed) > 0 {
				g.answer(id, &discovery.DeltaDiscoveryResponse{TypeUrl: k.url, Nonce: plane.nonce(k, l), Resources: renewed})
			}
		}
	case "extra":
		resp := &discovery.DeltaDiscoveryResponse{TypeUrl: k.url}
		for _, name := range slices.Compact(slices.Sorted(slices.Values(o.Add))) {
			if r, ok := plane.world[k.name][name]; ok && l != nil {
				resp.Resources = append(resp.Resources, plane.wire(k, name))
				plane.noteSent(k, l, name, r)
			}
		}
		resp.Nonce = plane.nonce(k, l)
		g.answer(id, resp)
	case "end":
		g.log("up%d > end %d", id, o.N)
		g.relay.End(id, o.N%3)
	}
}

// say says what there is to say of a type on a stream, with a fault perhaps; true if there was anything.
func (g *Game) say(id int, k kind, pieces, fault int) bool {
	plane, s := g.server(id)
	l := s.lanes[k.name]
	if l == nil {
		return false
	}
	before := maps.Clone(l.as)
	resp := plane.push(k, l, pieces)
	if resp == nil {
		return false
	}
	if fault == faultRepeats && len(resp.Resources) > 0 && s.sotw == nil {
		resp.Resources = append(resp.Resources, proto.Clone(resp.Resources[0]).(*discovery.Resource)) // ERR-11
	}
	if fault >= 0 && s.sotw == nil {
		for _, r := range resp.Resources {
			delete(l.ends, r.GetName()) // it is not renewed until it has been said again
		}
		if sound, name, ok := faulty(resp, fault); ok {
			l.keeps(before, sound)
			g.hear(id, k, resp, sound, name)
			return true
		}
	}
	g.spoil = fault >= 0
	g.answer(id, resp)
	g.spoil = false
	return true
}

// hear lets the relay hear a faulty response, of which only something is sound. On a probe
// nobody listens.
func (g *Game) hear(id int, k kind, said proto.Message, sound *discovery.DeltaDiscoveryResponse, name string) {
	g.log("up%d > %s, of which is sound %s", id, said, sound)
	g.checker.now = g.relay.Now()
	g.checker.heard()
	g.checker.upSaid(id, sound)
	g.checker.faulted(id, k, spoilt(said, name))
	g.relay.Answer(id, said)
}

func (g *Game) answer(id int, resp *discovery.DeltaDiscoveryResponse) {
	var said proto.Message = resp
	if plane, s := g.server(id); s != nil && s.sotw != nil {
		whole, means := g.sotwAnswer(plane, s, resp)
		if whole == nil {
			return
		}
		said, resp = whole, means
		if k := kindOf(resp.GetTypeUrl()); g.spoil && len(whole.Resources) > 0 {
			unreadable(whole)
			means.Resources, means.RemovedResources = means.Resources[1:], nil
			g.hear(id, k, whole, means, "")
			return
		}
	}
	g.log("up%d > %s", id, resp)
	g.checker.heard()
	g.checker.now = g.relay.Now()
	g.checker.upSaid(id, resp)
	g.relay.Answer(id, said)
}

// serve lets the control planes that are eager read everything and say everything.
func (g *Game) serve() (busy bool) {
	for _, id := range slices.Clone(g.open) {
		plane, s := g.server(id)
		if s == nil || plane.hung || plane.habits&eager == 0 {
			continue
		}
		if plane.read(s) {
			g.refuse(id)
			return true
		}
		for _, k := range kinds {
			if plane.streams[id] == s {
				busy = g.say(id, k, 0, noFault) || busy
			}
		}
	}
	return busy
}

// player is a client by its number.
func (g *Game) player(id int) *player {
	p := g.players[id]
	if p == nil {
		p = newPlayer(id)
		g.players[id] = p
	}
	return p
}

// playClient is what one client does.
func (g *Game) playClient(o Op, k kind) {
	p := g.player(o.Who)
	g.checker.now = g.relay.Now()
	g.checker.heard()
	switch o.Verb {
	case "open":
		if !p.open && len(p.wants) == 0 {
			p.sotw, p.auto = o.N&1 != 0, o.N&2 != 0
			g.openStream(p, 0)
		}
	case "sub", "subs":
		g.subscribe(p, k, o.names(), o.Drop)
	case "unsubs":
		if p.sotw {
			g.subscribe(p, k, manyNames(1), nil)
		} else {
			g.subscribe(p, k, nil, o.names())
		}
	case "refused":
		g.askRefused(p, refusedType, o.Add, o.Drop, false)
	case "crowded":
		g.askRefused(p, []string{crowdedType, fullestType}[o.N&1], o.Add, o.Drop, o.N&2 != 0)
	case "ack", "nack":
		g.judge(p, k, o.Verb == "nack")
	case "acks":
		g.ackAll(p)
	case "close":
		g.hangUp(p)
		delete(g.checker.clients, p.id) // it will never come back
		delete(g.players, p.id)
	case "reconnect":
		g.hangUp(p)
		g.openStream(p, o.N%4)
	case "deaf":
		p.deaf = o.N != 0 && p.open
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
	beat := max(500*time.Millisecond, d/100)
	for d > 0 && !g.failed() {
		step := d
		if g.planes[0].habits&eager != 0 {
			step = min(d, beat)
		}
		g.checker.heard()
		g.relay.Wait(step)
		g.checker.now = g.relay.Now()
		d -= step
		if d > 0 {
			g.act()
		}
	}
}
