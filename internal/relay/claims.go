package relay

import (
	"fmt"
	"slices"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/events"
	"github.com/xds-relay/xds-relay/internal/hop"
	upsession "github.com/xds-relay/xds-relay/upstream/session"
)

// Claims are what a group's streams carry because of some of its clients: the longest way by which clients
// come (NODE-11), and dynamic parameters that are not in the group's key (NODE-2). What the control plane
// refuses is taken back from the clients that made it, and from nobody else (UP-21). It is not safe for
// concurrent use.
type Claims struct {
	ways      hop.Ways
	claimants map[*Claimant]struct{}
	turn      uint64 // counts what was said
	refused   []refusedClaim
}

// Claimant is a client that claims something; nil: it does not.
type Claimant struct {
	client session.Peer
	way    []string
	node   *core.Node // nil: it is the same for the whole group
	said   uint64
}

// refusedClaim is a claim that the control plane has refused, which nobody can make until a time.
type refusedClaim struct {
	upsession.Refusal
	until time.Time
}

const (
	// refusedFor is how long a claim is refused before it may be tried again.
	refusedFor = time.Minute
	// maxRefused bounds the claims that are remembered as refused; the oldest go first.
	maxRefused = 64
)

// NewClaims returns those of a group without clients.
func NewClaims() *Claims {
	return &Claims{ways: make(hop.Ways), claimants: make(map[*Claimant]struct{})}
}

// Join notes what a client says, or returns why it cannot. node is nil where it is the same for all of
// the group.
func (c *Claims) Join(client session.Peer, node *core.Node, now time.Time) (*Claimant, *session.End) {
	way := client.Way()
	if end := c.refuses(way, node, now); end != nil {
		return nil, end
	}
	if len(way) == 0 && node == nil {
		return nil, nil
	}
	c.turn++
	s := &Claimant{client, way, node, c.turn}
	c.claimants[s] = struct{}{}
	c.ways.Join(way)
	return s, nil
}

// Leave notes that a client has gone. What it has said of its node stays until another one says
// something.
func (c *Claims) Leave(s *Claimant) {
	if s == nil {
		return
	}
	c.ways.Leave(s.way)
	delete(c.claimants, s)
}

// Renew notes that a client says another node, or returns why it cannot.
func (c *Claims) Renew(s *Claimant, node *core.Node, now time.Time) *session.End {
	if end := c.refuses(nil, node, now); end != nil {
		return end
	}
	c.turn++
	s.node, s.said = node, c.turn
	return nil
}

// Via is the longest way.
func (c *Claims) Via() []string { return c.ways.Longest() }

// Refuse takes a claim back. It returns the clients that make it, one for each stream, which are to be ended
// and make it no more, and the node that another client has said last, or nil.
func (c *Claims) Refuse(r upsession.Refusal, now time.Time) (ended []session.Peer, node *core.Node) {
	if len(c.refused) == maxRefused {
		c.refused = slices.Delete(c.refused, 0, 1)
	}
	c.refused = append(c.refused, refusedClaim{r, now.Add(refusedFor)})
	var last *Claimant
	streams := make(map[any]bool)
	for s := range c.claimants {
		switch {
		case same(r.Claim, s.way, s.node):
			if !streams[s.client.Stream] {
				ended = append(ended, s.client)
			}
			streams[s.client.Stream] = s.client.Stream != nil
			c.retract(s, r.Claim)
		case s.node != nil && (last == nil || last.said < s.said):
			last = s
		}
	}
	if last != nil {
		node = last.node
	}
	return ended, node
}

// retract has a client not make a claim any more.
func (c *Claims) retract(s *Claimant, claim upsession.Claim) {
	if claim.Node != nil {
		s.node = nil
		return
	}
	c.ways.Leave(s.way)
	s.way = nil
}

// same reports whether one of these is the claim.
func same(claim upsession.Claim, way []string, node *core.Node) bool {
	if claim.Node == nil {
		return slices.Equal(claim.Via, way)
	}
	return node != nil && proto.Equal(claim.Node, node)
}

func (c *Claims) refuses(way []string, node *core.Node, now time.Time) *session.End {
	c.refused = slices.DeleteFunc(c.refused, func(r refusedClaim) bool { return !r.until.After(now) })
	for _, r := range c.refused {
		if same(r.Claim, way, node) {
			return Refused(r.Refusal)
		}
	}
	return nil
}

// Refused is how the clients learn of it that make a refused claim.
func Refused(r upsession.Refusal) *session.End {
	because := "the dynamic_parameters of their node"
	if r.Node == nil {
		because = fmt.Sprintf("the relays through which they come (%.1000s)", strings.Join(r.Via, ", "))
	}
	return &session.End{Reason: session.RefusedUpstream, Message: fmt.Sprintf("the control plane refuses streams of these clients because of %s: %s", because, r.Message)}
}

// refused takes back from some clients of a group what the control plane refuses, and ends them.
func (g *groups) refused(gr *group, r upsession.Refusal) {
	g.mu.Lock()
	ended, node := gr.claims.Refuse(r, time.Now())
	if r.Node != nil {
		gr.node = node // its streams go on without the refused one
	}
	if r.Node != nil && node != nil {
		gr.client.SetNode(node)
	}
	gr.tellWay()
	g.mu.Unlock()
	end := Refused(r)
	g.log.Warn("the control plane refuses the streams of a group because of what some of its clients say of themselves; they are ended, and the others go on without",
		"group", gr.hub.Name(), "via", hop.Value(r.Via), "node", r.Node.GetId(), "clients", len(ended), "err", r.Message)
	g.events.Publish(events.Event{Kind: events.GroupRefused, Level: events.Warn, Group: gr.hub.Name(), Count: len(ended), Message: end.Message, Subject: "claim " + gr.hub.Name()})
	for _, client := range ended {
		if client.End != nil {
			client.End(end)
		}
	}
}

// renew has a group say another node upstream, which a client of it says of itself.
func (g *groups) renew(gr *group, s *Claimant, node *core.Node) {
	g.mu.Lock()
	end := gr.claims.Renew(s, node, time.Now())
	if end == nil {
		gr.say(node)
	}
	g.mu.Unlock()
	if end != nil && s.client.End != nil {
		s.client.End(end)
	}
}
