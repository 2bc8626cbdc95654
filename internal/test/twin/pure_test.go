package twin

import (
	"bytes"
	"cmp"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/relay"
	"github.com/xds-relay/xds-relay/internal/snapshot"
	"github.com/xds-relay/xds-relay/internal/test/xdstest"
	"github.com/xds-relay/xds-relay/upstream"
	upsession "github.com/xds-relay/xds-relay/upstream/session"
)

// pureRelay is the relay without gRPC, goroutines and clock: Core, Hub and
// Sessions, which act in turn. It stands where the edges stand: a client is served
// when its Session was woken or its deadline has come, and not else, so that a
// missing wake-up is a lost update here too.
type pureRelay struct {
	game     *Game
	config   *config.Config
	settings Settings
	tiny     *tiny
	session  session.Config

	now        time.Time
	hold       bool
	planes     []*purePlane
	hub        *fanout.Hub
	core       *upsession.Core
	woken      bool // interest has changed since the Core looked
	owed       bool // something other than a routine response has come since the last tick, which is due
	deliveries *session.ClusterDeliveries
	disk       []byte // the snapshot; nil: none
	crowd      crowd

	streams []upsession.StreamID       // open ones
	planeOf map[upsession.StreamID]int // to which control plane they lead
	clients []*pureClient
}

type pureClient struct {
	id      int
	sotw    bool
	deaf    bool
	woken   bool
	timer   time.Time // when to look at it though it is not woken; zero: never
	session *session.Session
}

// The ways in which a stream to the control plane ends, by number.
var endings = []error{
	status.Error(codes.Unavailable, "error reading from server: EOF"),
	status.Error(codes.Unavailable, "going away"),
	io.EOF,
	status.Error(codes.InvalidArgument, "unknown type"),
	status.Error(codes.ResourceExhausted, "grpc: received message larger than max"),
}

var unimplemented = status.Error(codes.Unimplemented, "unknown method DeltaAggregatedResources")

// configs are made once for each of the settings.
var configs sync.Map

func configure(s Settings) *config.Config {
	if c, ok := configs.Load(s); ok {
		return c.(*config.Config)
	}
	mode := cmp.Or(s.SotW, "delta")
	set := []string{
		"upstream.mode=" + mode,
		"admin.listen=", "downstream.drain=0s", "downstream.first_message_timeout=1h", "downstream.request_rate=1000", "upstream.coalesce_window=" + s.Coalesce.String(),
		"timers.settle=" + s.Settle.String(), "timers.name_linger=" + s.Linger.String(),
		"cache.max_lingering_names=20000", // more than any game has
	}
	if s.Second != "" {
		set = append(set, `upstream.fallbacks=[{"address":"`+xdstest.SecondAddress+`"}]`)
	}
	if strings.Contains(s.Server, marks) {
		set = append(set, "upstream.chunk_marker=relay")
	}
	c, err := config.Load("", append(set, bounded(s).config...))
	if err != nil {
		panic(err)
	}
	configs.Store(s, c)
	return c
}

func newPureRelay(g *Game, s Settings) *pureRelay {
	c := configure(s)
	r := &pureRelay{game: g, config: c, settings: s, tiny: bounded(s), session: relay.DownstreamConfig(c), planeOf: map[upsession.StreamID]int{}, now: time.Date(2100, time.January, 1, 0, 0, 0, 0, time.UTC)}
	if s.Bounded("response") {
		r.session.MaxResponse = smallResponse
	}
	r.session.Types = crowdTypes
	r.session.Random, r.session.Bounds = func() float64 { return 0.5 }, &r.tiny.session
	r.Restart()
	return r
}

func (r *pureRelay) Restart() {
	r.streams, r.clients = nil, nil
	for range r.config.Upstream.Entries()[len(r.planes):] {
		r.planes = append(r.planes, &purePlane{})
	}
	for _, p := range r.planes {
		p.connected, p.pending = false, nil
	}
	r.deliveries, r.crowd.hub = session.NewClusterDeliveries(), nil
	h := relay.HubConfig(r.config)
	h.Bounds = &r.tiny.hub
	r.hub = fanout.NewHub(h)
	r.hub.Wanted().OnWake(func() { r.woken = true })
	c := relay.UpstreamConfig(r.config, cache.Fingerprint{})
	c.Node = &core.Node{Id: "relay"}
	c.Bounds = &r.tiny.core
	if r.tiny.request > 0 && r.settings.SotW == "" { // where SotW may be spoken, names would be left out, which is no part of the model
		c.MaxRequest = r.tiny.request
	}
	c.Answers = upsession.NewAnswers()
	for i := 0; i < len(c.Entries)*len(kinds) && !r.tiny.trials; i++ { // else nothing is tried
		c.Answers.Add(c.Entries[i/len(kinds)].Name, cache.TypeURL(kinds[i%len(kinds)].url))
	}
	r.core = upsession.NewCore(c, r.hub, func() float64 { return 0.5 })
	if r.disk != nil {
		s, err := snapshot.Decode(r.disk, nil, cache.Fingerprint{})
		if err != nil {
			panic(err)
		}
		r.hub.Disk().Load(s.Groups[0].Lanes, r.now)
	}
}

// Save goes through the form that it has on disk.
func (r *pureRelay) Save() {
	lanes := r.hub.Disk().Save(func(t cache.TypeURL) bool { return t == cache.Secret })
	s := snapshot.Snapshot{Groups: []snapshot.Group{{Lanes: lanes}}}
	var file bytes.Buffer
	if err := s.Encode(&file, nil); err != nil {
		panic(err)
	}
	r.disk = file.Bytes()
}

func (r *pureRelay) Kills() bool { return true }

func (r *pureRelay) Now() time.Time { return r.now }

// --- clients ---

// Key and Join make it a downstream.Groups of one group.
func (r *pureRelay) Key(session.Peer, *core.Node) (string, *session.End) { return "", nil }

func (r *pureRelay) Join(_ session.Peer, _ *core.Node, t cache.TypeURL) (session.Membership, *session.End) {
	if t == refusedType {
		return session.Membership{Own: true}, &session.End{Reason: session.Forbidden, Message: "not for you"}
	}
	if t == crowdedType || t == fullestType {
		return r.joinCrowd()
	}
	return session.Membership{Hub: r.hub, Leave: func() {}}, nil
}

func (r *pureRelay) client(id int) *pureClient {
	i := slices.IndexFunc(r.clients, func(c *pureClient) bool { return c.id == id })
	if i < 0 {
		return nil
	}
	return r.clients[i]
}

func (r *pureRelay) Open(id int, sotw bool) {
	c := &pureClient{id: id, sotw: sotw}
	c.session = session.New(&r.session, session.Stream{Delta: !sotw}, session.Peer{Local: true}, r, r.deliveries, func() { c.woken = true })
	r.clients = append(r.clients, c)
}

func (r *pureRelay) Ask(id int, m proto.Message) {
	c := r.client(id)
	if c == nil {
		return
	}
	var end *session.End
	switch req := proto.Clone(m).(type) {
	case *discovery.DeltaDiscoveryRequest:
		_, end = c.session.DeltaRequest(req, r.now)
	case *discovery.DiscoveryRequest:
		_, end = c.session.SotWRequest(req, r.now)
	}
	c.woken = true
	if end != nil {
		r.end(c, end)
		return
	}
}

func (r *pureRelay) Close(id int) {
	if c := r.client(id); c != nil {
		c.session.Close(r.now)
		r.clients = slices.DeleteFunc(r.clients, func(o *pureClient) bool { return o == c })
	}
}

func (r *pureRelay) end(c *pureClient, end *session.End) {
	r.Close(c.id)
	r.game.Ended(c.id, end.Reason == session.Unreachable || end.Reason == session.AskAgain, end.Message, r.now)
}

func (r *pureRelay) Deaf(id int, deaf bool) {
	if c := r.client(id); c != nil {
		c.deaf = deaf
	}
}

// flush sends a client all that there is.
func (r *pureRelay) flush(c *pureClient) (busy bool) {
	if c.deaf || !c.woken && (c.timer.IsZero() || c.timer.After(r.now)) {
		return false
	}
	c.woken = false
	defer func() { c.timer = c.session.Deadline(r.now) }()
	for range restless {
		resp, end := c.session.Next(r.now)
		if end != nil {
			r.end(c, end)
			return true
		}
		if resp == nil {
			return true
		}
		var m proto.Message = new(discovery.DeltaDiscoveryResponse)
		if c.sotw {
			m = new(discovery.DiscoveryResponse)
		}
		if err := proto.Unmarshal(downstream.Marshal(resp), m); err != nil {
			r.game.checker.fail("frame", "c%d is sent what cannot be read: %v", c.id, err)
		}
		r.game.Told(c.id, m, r.now)
		if r.game.failed() {
			return true
		}
	}
	r.game.checker.fail("quiet", "c%d is sent responses without end", c.id)
	return true
}

// --- the control plane ---

// step lets the Core take in one event, and carries out what it learned. On streams
// that it has ended nothing is heard from then on.
func (r *pureRelay) step(event func()) (learned bool) {
	event()
	effects := r.core.Effects()
	for _, e := range effects {
		e.Apply(r.hub)
		if e, ok := e.(upsession.CheckDue); ok {
			r.check(e.Stream, e.Timeout)
		}
	}
	for _, id := range slices.Clone(r.streams) {
		if !r.core.Uses(id) {
			r.forget(id)
		}
	}
	return len(effects) > 0
}

func (r *pureRelay) Answer(stream int, m proto.Message) {
	id := upsession.StreamID(stream)
	if !r.alive(id) {
		r.game.checker.fail("game", "a control plane that hangs says something")
	}
	d := upsession.Decode(proto.Clone(m), cache.Fingerprint{})
	d.Update.Source = cache.NewSource(r.now, nil)
	r.step(func() { r.core.Receive(id, d, r.now) })
	r.step(func() { r.core.Applied(id, d, r.now) })
	r.owed = r.owed || !d.Routine // after a routine response the edge does not call Tick
}

func (r *pureRelay) End(stream int, how int) {
	delete(r.planeOf, upsession.StreamID(stream))
	r.forget(upsession.StreamID(stream))
	end, _ := upstream.Ending(endings[how])
	r.owed = true
	r.step(func() { r.core.Ended(upsession.StreamID(stream), end, r.now) })
}

func (r *pureRelay) forget(id upsession.StreamID) {
	if slices.Contains(r.streams, id) {
		r.streams = slices.DeleteFunc(r.streams, func(o upsession.StreamID) bool { return o == id })
		r.game.StreamClosed(int(id), r.now)
	}
}

// tick does what is due on the control plane's side.
func (r *pureRelay) tick() (busy bool) {
	at := r.core.Deadline(r.now)
	due := r.woken || r.owed || !at.IsZero() && !at.After(r.now)
	r.woken, r.owed = false, false
	var open []upsession.Open
	var shut []upsession.StreamID
	busy = r.step(func() {
		if r.hub.Wanted().Pending() {
			r.core.Interest(r.now)
		}
		if due {
			open, shut = r.core.Tick(r.now)
		}
	})
	for _, p := range r.planes {
		p.pending = slices.DeleteFunc(p.pending, func(o upsession.Open) bool { return slices.Contains(shut, o.ID) })
	}
	for _, o := range open {
		r.owed = true
		r.connect(o)
	}
	for _, id := range slices.Clone(r.streams) {
		if req := r.core.Next(id, r.now); req != nil {
			busy, r.owed = true, true
			r.game.Asked(int(id), proto.Clone(req), r.now)
		}
	}
	at = r.core.Deadline(r.now)
	return busy || r.woken || len(open)+len(shut) > 0 || !at.IsZero() && !at.After(r.now)
}

// --- time ---

// restless is how many rounds it may take until nobody has anything left to do.
const restless = 50_000 // tens of thousands of names may go up one by one

func (r *pureRelay) Hold(hold bool) { r.hold = hold }

func (r *pureRelay) Settle() {
	if !r.hold {
		r.settle()
	}
}

func (r *pureRelay) settle() {
	for range restless {
		busy := r.giveUps()
		busy = r.giveConnectionsUp() || busy
		busy = r.tick() || busy
		for _, c := range slices.Clone(r.clients) {
			busy = r.flush(c) || busy
		}
		if !busy || r.game.failed() {
			r.invariants()
			return
		}
	}
	r.game.checker.fail("quiet", "the relay does not fall quiet")
}

// invariants checks those of the Core and of the Sessions.
func (r *pureRelay) invariants() {
	broken := r.core.Broken(r.now)
	for _, c := range r.clients {
		broken = append(broken, c.session.Check()...)
	}
	for _, what := range broken {
		r.game.checker.fail("check", "%s", what)
	}
}

// Step lets some parts act: n counts through the control plane's side and the
// clients.
func (r *pureRelay) Step(n int) {
	for i := range n {
		if i %= len(r.clients) + 1; i == len(r.clients) {
			r.tick()
		} else {
			r.flush(r.clients[i])
		}
	}
}

// Wait goes from deadline to deadline.
func (r *pureRelay) Wait(d time.Duration) {
	until := r.now.Add(d)
	if r.hub.Wanted().Pending() { // held still or not, it has been woken
		r.core.Interest(r.now)
	}
	for at := r.deadline(); !at.IsZero() && !at.After(until) && !r.game.failed(); at = r.deadline() {
		if at.After(r.now) {
			r.now = at
		}
		r.settle()
	}
	r.now = until
	r.settle()
}

// deadline is when something happens by itself, or zero.
func (r *pureRelay) deadline() (at time.Time) {
	all := append(r.attempts(), r.core.Deadline(r.now))
	for _, c := range r.clients {
		if !c.deaf {
			all = append(all, c.timer)
		}
	}
	for _, t := range all {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	return at
}

// --- the crowd ---

// crowd is the group of types for which there may be no room (NODE-14). Upstream has said there
// all that there is to say.
type crowd struct {
	hub  *fanout.Hub
	room bool
}

// crowdTypes are their properties.
var crowdTypes = cache.Types{
	crowdedType: {EmptyIsWildcard: true},
	fullestType: {EmptyIsWildcard: true, FullState: true},
}

func (r *pureRelay) Room(room bool) { r.crowd.room = room }

func (r *pureRelay) joinCrowd() (session.Membership, *session.End) {
	if !r.crowd.room {
		return session.Membership{Own: true}, &session.End{Reason: session.Overcrowded, Message: "no room"}
	}
	if r.crowd.hub == nil {
		r.crowd.hub = newCrowd(r)
	}
	return session.Membership{Hub: r.crowd.hub, Own: true, Leave: func() {}}, nil
}

// newCrowd is that group, in which somebody wants everything for good.
func newCrowd(r *pureRelay) *fanout.Hub {
	hub := fanout.NewHub(fanout.Config{Name: "crowd", Types: crowdTypes, Bounds: &r.tiny.hub})
	for _, t := range []cache.TypeURL{crowdedType, fullestType} {
		hub.Subscribe(t, fanout.NewSubscriber(func() {})).Delta(append([]string{wildcard}, poolNames...), nil, r.now)
		hub.Changes(r.now, func(fanout.Lane) (c fanout.Carrier, carried bool) { return c, true })
		var all []cache.Received
		for _, name := range roomNames {
			body := &anypb.Any{TypeUrl: string(t), Value: []byte(name)}
			all = append(all, cache.Received{Resource: cache.NewResource(t, &discovery.Resource{Name: name, Version: "1", Resource: body}, cache.Fingerprint{}), Upstream: "1"})
		}
		hub.On(fanout.Lane{Type: t, Wildcard: true}).Asked(nil)
		hub.On(fanout.Lane{Type: t}).Asked(poolNames)
		hub.Apply(fanout.Lane{Type: t, Wildcard: true}, &cache.Update{At: r.now, Stream: 1, First: true, Set: all, Synced: true})
		hub.Apply(fanout.Lane{Type: t}, &cache.Update{At: r.now, Stream: 2, First: true, Set: all, Removed: poolAliases})
	}
	return hub
}
