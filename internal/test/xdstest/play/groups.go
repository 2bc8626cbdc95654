package play

import (
	"slices"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/relay"
	upsession "github.com/xds-relay/xds-relay/upstream/session"
)

// group is one Hub and what fills it.
type group struct {
	name   string
	alone  bool
	kept   bool // it belongs in the snapshot
	node   *core.Node
	claims *relay.Claims
	hub    *fanout.Hub
	core   *upsession.Core
	woken  bool // interest has changed
	users  int
	endAt  time.Time // when it begins to wait for its stream to be alive, or zero
	over   bool
	// leaving: that time is over.
	leaving bool
}

// Key is the whole relay's.
func (p *player) Key(client session.Peer, node *core.Node) (string, *session.End) {
	return p.rules.Key(p.Grouping, client, node)
}

// Join makes player a downstream.Groups, together with Grouping.
func (p *player) Join(client session.Peer, node *core.Node, t cache.TypeURL) (session.Membership, *session.End) {
	reads, m, end := p.rules.Reads(client, node, t)
	if end != nil {
		return m, end
	}
	place, end := p.Place(client, node, t, reads)
	if end != nil {
		return session.Membership{Own: place.Own}, end
	}
	g, claimant, end := p.join(place, client, p.Node(place, node))
	if end != nil {
		return session.Membership{Own: place.Own}, end
	}
	m.Hub, m.Own, m.Leave = g.hub, place.Own, func() { p.leave(g, claimant) }
	if p.Varies(place) {
		m.Renew = func(node *core.Node) {
			node = p.Node(place, node)
			if end := g.claims.Renew(claimant, node, p.now); end != nil {
				client.End(end)
			} else {
				g.say(node)
			}
		}
	}
	return m, nil
}

func (p *player) join(place relay.Place, client session.Peer, node *core.Node) (*group, *relay.Claimant, *session.End) {
	i := -1
	if !place.Alone {
		i = slices.IndexFunc(p.groups, func(g *group) bool { return g.name == place.Name && !g.alone })
	}
	if i < 0 {
		if end := p.admit(place.Name); end != nil {
			return nil, nil, end
		}
		c := relay.UpstreamConfig(p.config, p.fingerprint)
		c.Node, c.NodeVaries, c.Headers, c.Hop, c.Answers = node, p.Varies(place), place.Headers, hopOf(p.config), p.answers
		hub := fanout.NewHub(p.hubConfig())
		hub.Disk().Load(p.saved[place.Name], p.now)
		delete(p.saved, place.Name)
		if !p.reached() {
			hub.Disk().Shelve(p.shelved[place.Name])
		}
		g := &group{name: place.Name, alone: place.Alone, kept: p.Keeps(place), node: node, hub: hub, core: upsession.NewCore(c, hub, Random), claims: relay.NewClaims()}
		hub.Wanted().OnWake(func() { g.woken = true })
		i = len(p.groups)
		p.groups = append(p.groups, g)
	}
	g := p.groups[i]
	claimant, end := g.claims.Join(client, p.Claim(place, node), p.now)
	if end != nil {
		return nil, nil, end
	}
	g.users++
	g.endAt = time.Time{}
	if g.leaving {
		g.leaving = false
		g.core.Stay()
	}
	g.core.SetVia(g.claims.Via(), p.now)
	g.say(node)
	return g, claimant, nil
}

// hubConfig forgets removals as soon as it may, so that no transcript rests on one that
// is still known.
func (p *player) hubConfig() fanout.Config {
	c, bounds := relay.HubConfig(p.config), fanout.DefaultBounds
	bounds.Tombstones = func(int) int { return 0 }
	c.Bounds = &bounds
	return c
}

// refused takes back from some clients what the control plane refuses, and ends them.
func (p *player) refused(g *group, r upsession.Refusal) {
	ended, node := g.claims.Refuse(r, p.now)
	if r.Node != nil {
		g.node = node
	}
	if r.Node != nil && node != nil {
		g.core.SetNode(node)
	}
	g.core.SetVia(g.claims.Via(), p.now)
	for _, client := range ended {
		client.End(relay.Refused(r))
	}
}

func (g *group) say(node *core.Node) {
	if !proto.Equal(g.node, node) {
		g.node = node
		g.core.SetNode(node)
	}
}

func (p *player) leave(g *group, claimant *relay.Claimant) {
	g.claims.Leave(claimant)
	g.core.SetVia(g.claims.Via(), p.now)
	switch g.users--; {
	case g.users > 0:
	case g.alone:
		g.over = true
	default:
		g.endAt = p.now.Add(p.config.Timers.GroupLinger)
	}
}

// admit makes room for a group, if there is none and one can go.
func (p *player) admit(name string) *session.End {
	end := p.Admit(p.taken(name))
	if end != nil {
		if i := slices.IndexFunc(p.groups, func(g *group) bool { return g.leaving && g.hub.Bare() }); i >= 0 {
			p.endGroup(p.groups[i])
			return p.Admit(p.taken(name))
		}
	}
	return end
}

// taken is how many groups there are beside one, with those that nobody has come back to
// while no control plane is there.
func (p *player) taken(name string) int {
	_, loaded := p.saved[name]
	if loaded || name == "" || p.reached() {
		return len(p.groups)
	}
	return len(p.groups) + len(p.saved)
}

// reached reports whether the control plane is there, as far as some group can tell.
func (p *player) reached() bool {
	return slices.ContainsFunc(p.groups, func(g *group) bool { return g.core.Proven(p.now) })
}

// endGroups ends the groups that are over, and has those go that have lingered for long
// enough (NODE-10).
func (p *player) endGroups() (busy bool) {
	for _, g := range slices.Clone(p.groups) {
		switch due := !g.endAt.IsZero() && !g.endAt.After(p.now); {
		case g.over:
			busy = true
			p.endGroup(g)
		case due:
			busy, g.endAt, g.leaving = true, time.Time{}, true
			g.core.Retire(p.Stays(g.name), p.now)
		}
	}
	return busy
}

func (p *player) endGroup(g *group) {
	if g.kept {
		p.giveUp(g, append(g.hub.Disk().Save(p.secret), g.hub.Disk().Unwanted(p.secret)...))
	}
	p.groups = slices.DeleteFunc(p.groups, func(o *group) bool { return o == g })
	p.shut(func(s *stream) bool { return s.group == g })
}
