package twin

import (
	"fmt"
	"slices"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/relay"
)

// Several games on one relay: each has its group of clients, whose nodes or certificates tell
// them apart (NODE-4), and its own world, which the control planes have for that group, and in
// which nothing is as in another one's. What is common happens to all: a control plane is gone,
// or hangs; the relay ends, and begins again.

// company is how groups on one relay are told apart.
type company struct {
	key  string // of the groups; "": there is one
	only string // the only type that has the key, and that is played; "": all have it
	// sealed: what is on disk is encrypted, and so secrets are there, too.
	sealed bool
	papers *papers // the certificates of everybody, if the key is byIdentity
}

// The keys that tell groups apart.
const (
	byNode     = "cluster"
	byIdentity = "identity"
)

// config is that of a relay with these groups.
func (h *liveHost) config() *config.Config {
	c, of := *configure(h.settings), h.company
	c.Cache.Snapshot.Dir, c.Cache.Snapshot.KeepUnwanted = h.dir, 0 // RECON-19 has transcripts for what is unwanted
	if of.key == "" {
		return &c
	}
	c.Timers.GroupLinger = 24 * time.Hour // NODE-10 has transcripts
	c.Upstream.NodeMode = config.NodeModeTemplate
	switch of.only {
	case "":
		c.Groups.Key = []string{of.key}
	case secrets: // by themselves (NODE-6)
	default:
		c.Groups.Types = []config.TypeKey{{TypeURL: kindOf(of.only).url, Key: []string{of.key}}}
	}
	if of.key == byIdentity {
		c.Downstream.TLS = of.papers.files
		c.Groups.Secrets, c.Groups.SendIdentity = config.SecretsIdentity, of.sealed // the control planes judge by the node
	}
	if of.sealed {
		c.Cache.Snapshot.KeyFile = of.papers.keyFile
	}
	return &c
}

// groupNode is what a group says of itself to the control planes: it is made of the key, and of
// nothing else that a client says (NODE-7).
func (h *liveHost) groupNode(group int) *core.Node {
	of := relay.NewGrouping(h.config())
	client, node, kind := session.Peer{}, &core.Node{}, h.company.only
	if h.company.key == byIdentity {
		client.Identity = identities[group]
	} else {
		node.Cluster = clusterOf(group)
	}
	if kind == "" {
		kind = plain[0].name
	}
	place, end := of.Place(client, node, cache.TypeURL(kindOf(kind).url), nil)
	if end != nil {
		panic(end.Message)
	}
	return of.Node(place, node)
}

// clusterOf is what nodes say of a group's clients.
func clusterOf(group int) string { return fmt.Sprint("group-", group) }

// greets is a message that may say of what node it comes.
type greets interface{ GetNode() *core.Node }

// introduced is a client's request with what it says of itself.
func (r *liveRelay) introduced(id int, m proto.Message) proto.Message {
	m = proto.Clone(m)
	switch node := m.(greets).GetNode(); {
	case node == nil:
	case r.company.key == byIdentity:
		r.lie(id, node)
	default:
		node.Cluster = clusterOf(r.group)
	}
	return m
}

// relayOf is the game whose group a stream to a control plane belongs to.
func (h *liveHost) relayOf(first proto.Message) *liveRelay {
	node := first.(greets).GetNode()
	i := slices.IndexFunc(h.relays, func(r *liveRelay) bool { return proto.Equal(r.says, node) })
	if i < 0 {
		r := h.relays[0]
		r.hear(above, func() {
			r.game.checker.fail("G1", "a stream to the control plane is of no group that there is: %v", node)
		})
		return r
	}
	return h.relays[i]
}

// common are the operations that happen to all games.
var common = []string{"down", "up", "hang", "wake", "restart"}

// play plays a script in each game, an operation of each in turn, to the end of all.
func (h *liveHost) play(scripts []Script) []string {
	longest := 0
	for i, r := range h.relays {
		r.game.relay = r
		longest = max(longest, len(scripts[i].Ops))
	}
	h.relays[0].Settle()
	for n := range longest {
		for i, r := range h.relays {
			if n < len(scripts[i].Ops) && !r.game.failed() {
				h.operate(r, scripts[i].Ops[n])
			}
			if violations := h.violations(); len(violations) > 0 {
				return violations
			}
		}
	}
	for _, r := range h.relays { // as finish does, one game after the other
		last := r.game.planes[len(r.game.planes)-1]
		r.game.hang(last, false)
		r.game.setDown(last, false)
	}
	for _, r := range h.relays {
		if !r.game.failed() {
			r.game.finish()
		}
	}
	return h.violations()
}

// operate plays one operation of a game, and lets all do what they do by themselves.
func (h *liveHost) operate(r *liveRelay, o Op) {
	concerned := []*liveRelay{r}
	if slices.Contains(common, o.Verb) {
		concerned = h.relays
	}
	for _, r := range concerned {
		r.game.log("--- %v", o)
	}
	if o.Verb == "restart" && o.N%2 == 1 { // over gRPC nobody kills it; it ends in another way
		h.drain()
	} else {
		for _, r := range concerned {
			r.game.play(o)
		}
	}
	for _, r := range h.relays {
		if !r.game.failed() {
			r.game.act()
		}
	}
}

// violations are what is wrong in any of the games.
func (h *liveHost) violations() (all []string) {
	for _, r := range h.relays {
		all = append(all, r.game.checker.Violations...)
	}
	return all
}

// drainFor is how long a relay that ends takes to send its clients away.
const drainFor = 10 * time.Second

// drain has the relay send its clients away, at random times, and then another one begins:
// until its end each client is sent what it would be sent anyway, and nothing is removed (ERR-14).
func (h *liveHost) drain() {
	over := make(chan struct{})
	go func() {
		defer close(over)
		h.stop(drainFor)
	}()
	for range 4 {
		h.relays[0].Wait(drainFor / 2)
	}
	<-over
	h.relays[0].Settle()
	h.stop = func(time.Duration) {} // it has ended
	for _, r := range h.relays {
		r.game.leave()
	}
	h.relays[len(h.relays)-1].Restart()
}
