package play

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/relay"
	"github.com/xds-relay/xds-relay/internal/snapshot"
	"github.com/xds-relay/xds-relay/internal/test/xdstest"
	"github.com/xds-relay/xds-relay/upstream"
	upsession "github.com/xds-relay/xds-relay/upstream/session"
)

// player plays a transcript against the pure parts of the relay: Core, Hub and
// Session. It stands where upstream.Client, downstream's stream and the groups of
// internal/relay stand in a relay that runs, and takes the same steps one after
// another, at a time that is a number: it has no gRPC, no goroutine and no clock.
//
// It asks every client in every round. That a wake-up is missing is seen over gRPC.
type player struct {
	// What the relay was started with.
	relay.Grouping
	rules       *relay.Rules // nil: clients may read everything
	config      *config.Config
	session     session.Config
	fingerprint cache.Fingerprint
	trials      bool

	// The relay. Groups and clients stand in order of age.
	now        time.Time
	groups     []*group
	deliveries *session.ClusterDeliveries
	answers    *upsession.Answers        // nil: there are no trials
	saved      map[string][]fanout.Saved // by the relay before this one
	// What nobody wants any more, the latest first, and what of it this relay has found on disk.
	unwanted []snapshot.Group
	shelved  map[string][]fanout.Saved
	clients  []*client

	// The world around it.
	transcript *xdstest.Transcript
	planes     map[string]*controlPlane // control planes, by the prefix of their actors
	streams    []*stream                // to the control plane; oldest first

	// What it has said.
	events []xdstest.Event
	fault  error
	// told, if set, hears every response that a client gets.
	told func(*client, proto.Message)
}

// stream is the control plane's end of a stream that the relay has opened.
type stream struct {
	actor  string
	group  *group
	id     upsession.StreamID
	via    []string
	header string // words for its headers
	sotw   bool
	spoken bool
	ear    xdstest.Ear
}

// The words of gRPC for what happens to a stream below it.
var (
	errLost    = status.Error(codes.Unavailable, "error reading from server: io: read/write on closed pipe")
	errRefused = status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial tcp: connection refused"`)
	errGarbled = status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v",
		proto.Unmarshal([]byte{0xff, 0xff, 0xff}, new(discovery.DiscoveryRequest)))
)

// newPlayer starts a relay of pure parts for a transcript.
func newPlayer(t *xdstest.Transcript) (xdstest.Player, error) {
	c, trials, err := settings(t.Config)
	if err != nil {
		return nil, err
	}
	return start(c, trials, t)
}

func start(c *config.Config, trials bool, t *xdstest.Transcript) (*player, error) {
	p := &player{
		Grouping: relay.NewGrouping(c), config: c, session: relay.DownstreamConfig(c),
		now:        time.Date(2100, time.January, 1, 0, 0, 0, 0, time.UTC), // whoever looks at a clock is a century early
		deliveries: session.NewClusterDeliveries(), trials: trials,
		transcript: t, planes: make(map[string]*controlPlane),
	}
	p.session.Random, p.session.Hop = Random, hopOf(c)
	var err error
	if p.fingerprint, err = relay.Fingerprint(c); err != nil {
		return nil, err
	}
	if p.rules, err = relay.ParseRules("rules.yaml", xdstest.PolicyFile(t.Policy), c); err != nil {
		return nil, err
	}
	p.begin()
	return p, nil
}

// changeRules puts the later rules of the transcript in force.
func (p *player) changeRules() (err error) {
	if p.rules, err = relay.ParseRules("rules.yaml", xdstest.PolicyFile(p.transcript.Later), p.config); err != nil {
		return err
	}
	for _, c := range p.clients {
		if c.session != nil {
			if end := c.session.Rejudge(p.now); end != nil {
				c.evicted = end
			}
		}
	}
	return nil
}

// begin does what a relay does by itself when it starts.
func (p *player) begin() {
	if p.trials {
		p.answers = upsession.NewAnswers()
	}
	if _, ok := p.saved[""]; ok && p.HasDefault() && p.Stays("") {
		g, speaker, _ := p.join(relay.Place{}, session.Peer{}, p.StaticNode()) // the first group is always admitted
		p.leave(g, speaker)
	}
	if types := relay.TypeURLs(p.config.Downstream.ReadyTypes); len(types) > 0 {
		g, _, _ := p.join(relay.Place{}, session.Peer{}, p.StaticNode())
		mailbox := fanout.NewSubscriber(func() {})
		for _, t := range types {
			g.hub.Subscribe(t, mailbox).Delta([]string{fanout.Wildcard}, nil, p.now)
		}
	}
	p.settle()
}

// restart ends the relay, unheard, and starts another one. What is saved goes through
// the form it has on disk.
func (p *player) restart() {
	keep := slices.ContainsFunc(p.transcript.Config, func(kv string) bool { return strings.HasSuffix(kv, "="+xdstest.StateDir) })
	var s snapshot.Snapshot
	sieve := snapshot.Sieve{Room: math.MaxInt64}
	for _, g := range p.groups {
		if !g.kept {
			continue
		}
		wanted := snapshot.Group{Name: []byte(g.name), Lanes: g.hub.Disk().Save(p.secret)}
		sieve.Say(wanted)
		s.Groups = append(s.Groups, wanted)
		p.giveUp(g, g.hub.Disk().Unwanted(p.secret))
	}
	s.Groups = append(s.Groups, p.unwanted...)
	p.groups, p.clients, p.streams, p.deliveries = nil, nil, nil, session.NewClusterDeliveries()
	for _, plane := range p.planes {
		plane.connected, plane.unheard, plane.pending = false, nil, nil
	}
	p.saved, p.shelved = make(map[string][]fanout.Saved), make(map[string][]fanout.Saved)
	if keep {
		var file bytes.Buffer
		err := s.Encode(&file, nil)
		back, fault := snapshot.Decode(file.Bytes(), nil, p.fingerprint)
		if p.fault = cmp.Or(p.fault, err, fault); p.fault != nil {
			return
		}
		for _, g := range back.Groups {
			if !g.Unwanted && len(g.Lanes) > 0 {
				p.saved[string(g.Name)] = g.Lanes
			}
			for _, lane := range g.Lanes {
				if lane, ok := sieve.Pass(g, lane); g.Unwanted && ok {
					p.shelved[string(g.Name)] = append(p.shelved[string(g.Name)], lane)
				}
			}
		}
	}
	p.begin()
}

// secret types are not on disk: no transcript has a key.
func (p *player) secret(t cache.TypeURL) bool { return p.session.Types.Of(t).Secret }

// giveUp notes what nobody wants any more of a group.
func (p *player) giveUp(g *group, lanes []fanout.Saved) {
	p.unwanted = append(snapshot.GroupsOf(g.name, p.now, true, lanes), p.unwanted...)
}

// --- the player ---

func (p *player) Say(actor string, c xdstest.Command) error {
	var err error
	switch {
	case c.Verb == "restart":
		p.restart()
	case c.Verb == "rules":
		err = p.changeRules()
	case actor[0] == 'c':
		err = p.client(actor).say(p, c)
	case c.Verb == "down":
		p.setDown(actor)
	case c.Verb == "back":
		p.plane(actor).down = false
	case c.Verb == "wake":
		p.wake(actor)
	case p.plane(actor).hung:
		err = fmt.Errorf("%s hangs, and cannot %s", actor, c.Verb)
	case c.Verb == "hang":
		p.plane(actor).hung = true
	case p.stream(actor) == nil:
		err = fmt.Errorf("%s has no open stream", actor)
	default:
		err = p.respond(p.stream(actor), c)
	}
	p.settle()
	return err
}

func (p *player) Heard() ([]xdstest.Event, error) {
	events := p.events
	p.events = nil
	return events, p.fault
}

// Wait goes from deadline to deadline.
func (p *player) Wait(d time.Duration) {
	until := p.now.Add(d)
	for at := p.deadline(); !at.IsZero() && !at.After(until) && p.fault == nil; at = p.deadline() {
		p.now = at
		p.settle()
	}
	p.now = until
	p.settle()
}

func (p *player) Close() {}

func (p *player) hear(actor, text string) {
	p.events = append(p.events, xdstest.Event{Actor: actor, Text: text})
}

// deadline is when something happens by itself, or zero.
func (p *player) deadline() time.Time {
	all := p.attempts()
	for _, g := range p.groups {
		all = append(all, g.core.Deadline(p.now), g.endAt)
	}
	for _, c := range p.clients {
		if c.session != nil {
			all = append(all, c.session.Deadline(p.now))
		}
	}
	all = slices.DeleteFunc(all, time.Time.IsZero)
	if len(all) == 0 {
		return time.Time{}
	}
	return slices.MinFunc(all, time.Time.Compare)
}

// restless is how many rounds it may take until nobody has anything left to do.
const restless = 1000

// settle lets everybody act until all is quiet, as time stands still.
func (p *player) settle() {
	defer p.recorded()
	for range restless {
		busy := p.endGroups()
		busy = p.giveUps() || busy
		busy = p.giveConnectionsUp() || busy
		for _, c := range p.clients {
			busy = p.flush(c) || busy
		}
		for _, g := range p.groups {
			busy = p.tick(g) || busy
		}
		if !busy {
			return
		}
	}
	p.fault = cmp.Or(p.fault, errors.New("the relay does not fall quiet"))
}

// --- the upstream edge, as in upstream.Client ---

// step lets a group's Core take in one event, and carries out what it learned.
func (p *player) step(g *group, event func()) (learned bool) {
	event()
	effects := g.core.Effects()
	for _, e := range effects {
		e.Apply(g.hub)
		switch e := e.(type) {
		case upsession.CheckDue:
			p.check(g, e.Stream, e.Timeout)
		case upsession.Refusal:
			p.refused(g, e)
		}
	}
	return len(effects) > 0
}

// tick does what is due: opens and shuts streams, and once that is done writes
// one request on each.
func (p *player) tick(g *group) (busy bool) {
	g.woken = false
	var open []upsession.Open
	var shut []upsession.StreamID
	busy = p.step(g, func() {
		if g.hub.Wanted().Pending() {
			g.core.Interest(p.now)
		}
		open, shut = g.core.Tick(p.now)
		g.over = g.over || g.core.Over(p.now)
	})
	busy = busy || g.over
	p.shut(func(s *stream) bool { return s.group == g && slices.Contains(shut, s.id) })
	for _, o := range open {
		p.open(g, o)
	}
	if len(open) > 0 {
		return true
	}
	for _, s := range p.streams {
		if s.group != g {
			continue
		}
		if req := g.core.Next(s.id, p.now); req != nil {
			for i, text := range s.ear.Hear(req) {
				if i == 0 && !s.spoken && slices.Contains(p.transcript.Show, "via") {
					text += " via=" + xdstest.Quote(strings.Join(s.via, ","))
				}
				if i == 0 && !s.spoken {
					text += s.header
				}
				p.hearUp(s, text)
			}
			s.spoken, busy = true, true
		}
	}
	at := g.core.Deadline(p.now)
	return busy || g.woken || len(shut) > 0 || !at.IsZero() && !at.After(p.now)
}

// open asks for a stream.
func (p *player) open(g *group, o upsession.Open) {
	s := &stream{group: g, id: o.ID, via: o.Via, sotw: o.SotW, actor: string(o.Role), ear: xdstest.Ear{Show: p.transcript.Show}}
	if o.Role == upsession.Main {
		s.actor = "up"
	}
	entry := p.config.Upstream.Entries()[o.Entry]
	if entry.Address == xdstest.SecondAddress {
		s.actor = "b." + s.actor
	}
	headers := make(map[string][]string)
	if own := relay.OwnHeaders(entry.Fallback); own != nil {
		mine, err := own()
		p.fault = cmp.Or(p.fault, err)
		o.Headers = append(mine, o.Headers...)
	}
	for _, h := range o.Headers {
		headers[h.Name] = append(headers[h.Name], string(h.Value))
	}
	s.header = xdstest.HeaderWords(headers)
	p.connect(s)
}

// opened gives a stream the first free name of its kind.
func (p *player) opened(s *stream) {
	for kind, n := s.actor, 2; p.stream(s.actor) != nil; n++ {
		s.actor = kind + strconv.Itoa(n)
	}
	p.streams = append(p.streams, s)
	p.step(s.group, func() { s.group.core.Opened(s.id, p.now) })
}

func (p *player) stream(actor string) *stream {
	if i := slices.IndexFunc(p.streams, func(s *stream) bool { return s.actor == actor }); i >= 0 {
		return p.streams[i]
	}
	return nil
}

// respond is what the control plane does on a stream.
func (p *player) respond(s *stream, c xdstest.Command) error {
	switch {
	case c.Verb == "garbage":
		p.shut(func(o *stream) bool { return o == s })
		p.ended(s, errGarbled)
		return nil
	case c.Verb == "end" && c.Status.Code == 0:
		p.ended(s, io.EOF)
		return nil
	case c.Verb == "end":
		p.ended(s, status.Error(codes.Code(c.Status.Code), c.Status.Message))
		return nil
	}
	m, err := c.Response(s.sotw)
	if err != nil {
		return err
	}
	p.receive(s, m)
	return nil
}

// receive takes in a response of the control plane.
func (p *player) receive(s *stream, m proto.Message) {
	d := upsession.Decode(m, p.fingerprint)
	p.step(s.group, func() { s.group.core.Receive(s.id, d, p.now) })
	p.step(s.group, func() { s.group.core.Applied(s.id, d, p.now) })
}

// shut ends streams on the relay's side.
func (p *player) shut(which func(*stream) bool) {
	p.forgetPending(which)
	p.streams = slices.DeleteFunc(p.streams, func(s *stream) bool {
		if which(s) {
			p.hearUp(s, "closed")
		}
		return which(s)
	})
}

// ended tells the Core that a stream has ended, or could not be opened.
func (p *player) ended(s *stream, err error) {
	p.streams = slices.DeleteFunc(p.streams, func(o *stream) bool { return o == s })
	end, _ := upstream.Ending(err)
	p.step(s.group, func() { s.group.core.Ended(s.id, end, p.now) })
}
