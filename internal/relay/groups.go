package relay

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/events"
	"github.com/xds-relay/xds-relay/internal/service"
	"github.com/xds-relay/xds-relay/internal/share"
	"github.com/xds-relay/xds-relay/internal/snapshot"
	"github.com/xds-relay/xds-relay/upstream"
	upsession "github.com/xds-relay/xds-relay/upstream/session"
)

// groups are the groups that live now, by the name that Grouping gives them. It
// implements downstream.Groups.
type groups struct {
	Grouping
	rules  *authorizer
	log    *slog.Logger
	events *events.Ring
	run    func(func(context.Context)) // starts a goroutine that Close ends

	mu sync.Mutex

	// Relay.Reconfigure replaces these: the configuration in force, and what groups
	// are made of. Grouping uses the configuration that the relay was started with.
	live    *config.Config
	hub     fanout.Config
	options upstream.ClientOptions
	sources []*source

	byName map[string]*group
	opened uint64 // groups for one stream only, ever
	// Loaded from disk: what was wanted of groups to which no client has come back yet, and what was not,
	// until the control plane is there.
	saved, shelved map[string][]snapshot.Group
	// ended are groups whose content has not gone to the snapshot yet.
	ended []*group

	needRules sync.Once // it was said that there are no rules

	closing bool            // clients are being sent away
	advised map[string]bool // hints that were logged about control planes that refuse groups
}

// group is one Hub and what fills it.
type group struct {
	name  string
	place Place
	kept  bool // it belongs in the snapshot,
	// and so does what its clients do not want any more.
	keepsUnwanted bool
	hub           *fanout.Hub
	client        *upstream.Client
	cancel        context.CancelFunc

	// Guarded by the mutex of groups.
	alone  bool
	shown  clusters // by its clients
	users  int      // streams, one for each of their types
	claims *Claims
	via    []string // the longest way among them, as its streams tell
	node   *core.Node
	linger *time.Timer
	// leaving: it has lingered for long enough, and goes as soon as its control plane is
	// there (NODE-10).
	leaving bool
	entry   *share.Entry[*group]       // whose the group is
	by      owners                     // of its clients
	begun   time.Time                  // when it last got a client
	kinds   map[cache.TypeURL]*members // what its clients ask for, and who they are
	types   share.Ledger[*members]     // whose the types are that the protocol does not name
	// withheld is a header that the group's clients use to prove who they are, and
	// that the relay does not forward (NODE-13).
	withheld string
}

// Key implements session.Groups.
func (g *groups) Key(client session.Peer, node *core.Node) (string, *session.End) {
	return g.rules.now.Load().Key(g.Grouping, client, node)
}

// Join enters the group from which a type is served to a client.
func (g *groups) Join(client session.Peer, node *core.Node, t cache.TypeURL) (session.Membership, *session.End) {
	reads, m, end := g.rules.now.Load().Reads(client, node, t)
	if end != nil {
		return m, end
	}
	p, end := g.Place(client, node, t, reads)
	if end != nil {
		g.adviseRules(end, client, t)
		m.Own = p.Own
		return m, end
	}
	gr, mb, displaced, end := g.enter(p, client, g.Node(p, node), t)
	displaced.end() // no lock is held
	if m.Own = p.Own; end != nil {
		g.tellFull(end)
		return m, end
	}
	g.compare(gr, node.GetCluster())
	m.Hub, m.Leave = gr.hub, func() { g.exit(gr, mb) }
	if g.Varies(p) {
		m.Renew = func(node *core.Node) { g.renew(gr, mb.claimant, g.Node(p, node)) }
	}
	return m, nil
}

// tellFull tells operators that there is no room for a client's group.
func (g *groups) tellFull(end *session.End) {
	if end.Reason == session.Overcrowded {
		g.events.Publish(events.Event{Kind: events.GroupRefused, Level: events.Warn, Message: end.Message, Subject: "groups.max"})
	}
}

// enter has a client join a group for a type.
func (g *groups) enter(p Place, client session.Peer, node *core.Node, t cache.TypeURL) (*group, *member, displaced, *session.End) {
	g.mu.Lock()
	defer g.mu.Unlock()
	gr, claimant, gone, end := g.join(p, client, node)
	if end != nil {
		return nil, nil, gone, end
	}
	m, others, end := gr.ask(t, client)
	if end != nil {
		g.part(gr, claimant)
		return nil, nil, gone, end
	}
	m.claimant = claimant
	if gr.place.Name != "" { // the default group never goes
		comes(&g.sourceOf(gr).totals, gr.entry, gr.by, m.owner)
	}
	return gr, m, append(gone, others...), nil
}

// exit has a client leave a group for a type.
func (g *groups) exit(gr *group, m *member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	gr.forget(m)
	if gr.place.Name != "" {
		goes(&g.sourceOf(gr).totals, gr.entry, gr.by, m.owner)
	}
	g.part(gr, m.claimant)
}

// join counts a client in a group, which is made if there is none. The mutex is held.
func (g *groups) join(p Place, client session.Peer, node *core.Node) (*group, *Claimant, displaced, *session.End) {
	var gone displaced
	name := p.groupName()
	if p.Alone {
		g.opened++
		name += "alone=" + strconv.FormatUint(g.opened, 10)
	}
	gr := g.byName[name]
	if gr == nil {
		e, others, end := g.admit(p, client)
		if end != nil {
			return nil, nil, nil, end
		}
		gr, gone = g.start(name, p, node), others
		gr.entry, e.Value = e, gr
		g.byName[name] = gr
		g.sourceOf(gr).groups++
	}
	claimant, end := gr.claims.Join(client, g.Claim(p, node), time.Now())
	if end != nil {
		return nil, nil, gone, end
	}
	if gr.users++; gr.users == 1 {
		gr.begun = time.Now()
		g.sourceOf(gr).totals.Renounce(gr.entry, false)
	}
	if gr.linger != nil {
		gr.linger.Stop()
		gr.linger = nil
	}
	if gr.leaving {
		gr.leaving = false
		gr.client.Stay()
	}
	gr.tellWay()
	gr.say(node)
	if gr.withheld == "" {
		gr.withheld = client.Withheld
	}
	return gr, claimant, gone, nil
}

// say passes on a changed node: a client's latest node holds for all of its streams
// (NODE-2).
func (gr *group) say(node *core.Node) {
	if !proto.Equal(gr.node, node) {
		gr.node = node
		gr.client.SetNode(node)
	}
}

// tellWay passes on by which way clients come (NODE-11).
func (gr *group) tellWay() {
	if via := gr.claims.Via(); !slices.Equal(via, gr.via) {
		gr.via = via
		gr.client.SetVia(via)
	}
}

// part counts a client out of a group; some time after the last one it ends (NODE-10). The mutex is held.
func (g *groups) part(gr *group, claimant *Claimant) {
	gr.claims.Leave(claimant)
	gr.tellWay()
	switch gr.users--; {
	case gr.users > 0:
	case gr.alone:
		g.end(gr) // nobody can come back to it
	case g.closing, g.byName[gr.name] != gr:
	default:
		if time.Since(gr.begun) < atOnce {
			g.sourceOf(gr).totals.Renounce(gr.entry, true)
		}
		gr.linger = time.AfterFunc(g.live.Timers.GroupLinger, func() { g.retire(gr) })
	}
}

// end ends a group, and keeps what belongs on the disk.
func (g *groups) end(gr *group) {
	if g.drop(gr); gr.keepsUnwanted {
		g.ended = append(g.ended, gr)
	}
}

// drop ends a group.
func (g *groups) drop(gr *group) {
	if g.byName[gr.name] == gr {
		delete(g.byName, gr.name)
		g.sourceOf(gr).groups--
	}
	g.sourceOf(gr).totals.Leave(gr.entry)
	gr.cancel()
}

// start makes a group and opens its streams when somebody wants something.
func (g *groups) start(name string, p Place, node *core.Node) *group {
	s := g.sources[p.source]
	h, c, o := g.hub, s.upstream, g.options
	o.Conns = s.conns
	if p.service != "" {
		o.Service, _ = service.Of(p.service) // Validate has seen to it that there is one
	}
	h.Name, h.Key = p.label()+nameOf(strings.TrimPrefix(name, p.prefix())), name
	gr := &group{name: name, place: p, alone: p.Alone, kept: g.Keeps(p), claims: NewClaims(), node: node, by: make(owners)}
	h.KeepUnwanted = h.KeepUnwanted && gr.kept
	gr.keepsUnwanted, gr.hub = h.KeepUnwanted, fanout.NewHub(h)
	g.warm(name, gr)
	c.Node, c.NodeVaries, c.Headers = node, g.Varies(p), p.Headers
	convictions := convictionsTo(o.Observer)
	if o.Observer != nil {
		o.Observer = convictions
	}
	o.Hub, o.Denied, o.Retired = gr.hub, func(entry string) { g.denied(gr, entry) }, func() { g.retired(gr) }
	o.Refused = func(r upsession.Refusal) { g.refused(gr, r) }
	o.Log = o.Log.With("group", h.Name)
	if p.Name != "" {
		g.log.Info("group opened", "group", h.Name, "group_key", name, "upstream_node", node.GetId())
	}
	gr.client = upstream.NewClient(c, o)
	started := make(chan struct{})
	g.run(func(ctx context.Context) {
		ctx, gr.cancel = context.WithCancel(ctx)
		close(started)
		gr.client.Run(ctx)
		convictions.end()
		gr.hub.Close()
	})
	<-started
	return gr
}

// sourceOf is that of a group.
func (g *groups) sourceOf(gr *group) *source { return g.sources[gr.place.source] }

// maxAdvice bounds the advice that is remembered, since clients choose the names in it.
const maxAdvice = 16

// denied says what may be missing where a control plane does not let a group in, once,
// whatever the number of groups (NODE-13).
func (g *groups) denied(gr *group, entry string) {
	g.mu.Lock()
	e := config.Entry{Name: entry}
	for _, known := range g.live.Upstream.AllEntries() {
		if known.Name == entry {
			e = known
		}
	}
	text := g.advice(e.Fallback, gr.place.Headers, gr.withheld)
	news := text != "" && !g.advised[text] && len(g.advised) < maxAdvice
	if news {
		g.advised[text] = true
	}
	g.mu.Unlock()
	if news {
		g.log.Warn(text, "group", gr.hub.Name(), "address", entry)
	}
}

// defaultGroup is what logs and people call the group without a key.
const defaultGroup = "default"

// nameOf is what logs and people call a group.
func nameOf(name string) string {
	if name == "" {
		return defaultGroup
	}
	return shortHash(name)
}

// keep makes groups and their resources stay although their clients are sent away:
// they are about to be saved (RECON-19).
func (g *groups) keep() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closing = true
	for _, gr := range g.byName {
		gr.hub.Disk().Keep()
		if gr.linger != nil {
			gr.linger.Stop()
		}
	}
}

// clients are the groups' sides towards the control plane, by the short names that logs use.
func (g *groups) clients() map[string]*upstream.Client {
	g.mu.Lock()
	defer g.mu.Unlock()
	clients := make(map[string]*upstream.Client, len(g.byName))
	for _, gr := range g.byName {
		clients[gr.hub.Name()] = gr.client
	}
	return clients
}

// hubs are the groups' Hubs, by the short names that logs use.
func (g *groups) hubs() map[string]*fanout.Hub {
	g.mu.Lock()
	defer g.mu.Unlock()
	hubs := make(map[string]*fanout.Hub, len(g.byName))
	for _, gr := range g.byName {
		hubs[gr.hub.Name()] = gr.hub
	}
	return hubs
}
