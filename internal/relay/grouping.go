package relay

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/header"
	"github.com/xds-relay/xds-relay/internal/policy"
)

// Grouping says which clients share an upstream view, and what such a group says
// of itself upstream. It is pure; the groups it names live in groups.
type Grouping struct {
	config  *config.Config
	key     groupKey
	types   map[cache.TypeURL]groupKey // those that have a key of their own
	alone   []cache.TypeURL            // those that are no subscriptions (NODE-12)
	headers headerKey                  // part of every key (NODE-13)
	secrets cache.Types                // says which types are secret
	relays  *atomic.Pointer[[]string]  // downstream.relays as they are now
}

// NewGrouping returns the grouping of a configuration, which must be valid.
func NewGrouping(c *config.Config) Grouping {
	g := Grouping{
		config: c, key: c.EffectiveKey(), types: make(map[cache.TypeURL]groupKey), alone: TypeURLs(c.Groups.UnmultiplexableTypes),
		headers: newHeaderKey(c.Groups.ForwardHeaders), secrets: typeTable(c), relays: new(atomic.Pointer[[]string]),
	}
	g.relays.Store(&c.Downstream.Relays)
	for _, t := range c.Groups.Types {
		g.types[TypeURLs([]string{t.TypeURL})[0]] = t.Key
	}
	return g
}

func (g Grouping) keyOf(t cache.TypeURL) groupKey {
	if key, ok := g.types[t]; ok {
		return key
	}
	return g.key
}

// Key is all that the keys in use read of a node: while it stays the same, so do the
// groups of a stream (NODE-2). The identity behind a stream cannot change.
func (g Grouping) Key(node *core.Node) (string, *session.End) {
	var all groupKey
	for _, key := range g.keys() {
		for _, entry := range key {
			if entry != identityEntry && !all.has(entry) {
				all = append(all, entry)
			}
		}
	}
	if node == nil && all.needsNode() && !g.config.Groups.DefaultGroup {
		return "", &session.End{Reason: session.BadRequest, Message: fmt.Sprintf(
			"the first request has no node, and clients are grouped by %s; send the node, or set groups.default_group",
			strings.Join(all, ", "))}
	}
	key, end := all.of(session.Peer{}, withoutIdentity(node))
	if said := identityIn(node); said != "" && len(*g.relays.Load()) > 0 {
		key += "says " + bounded(said)
	}
	return key, end
}

// describe says which keys are in use, for the log (NODE-5).
func (g Grouping) describe() string {
	text := strings.Join(g.key, ",")
	for _, t := range g.config.Groups.Types {
		text += "; " + t.TypeURL + ": " + strings.Join(t.Key, ",")
	}
	if names := g.headers.names; len(names) > 0 {
		text += "; headers: " + strings.Join(names, ",")
	}
	return text
}

// keys are the keys in use, in an order that does not change.
func (g Grouping) keys() []groupKey {
	keys := []groupKey{g.key}
	for _, t := range g.config.Groups.Types {
		keys = append(keys, t.Key)
	}
	return keys
}

// Place is where a client's type belongs.
type Place struct {
	// Name is made of the key; that of the default group of a provider is empty.
	Name string
	// Alone: the group is for one stream only, whatever its name (NODE-12).
	Alone bool
	// Own: it is not the group of the client's types that have no key of their own.
	Own bool
	// Headers are those that go up with the group's streams (NODE-13).
	Headers []header.Header

	provider
	key   groupKey
	whole bool // the name stands for the whole node, whatever the key
	// identity is that of all its clients, if the name stands for one; vouches: their nodes may say it (NODE-6).
	identity string
	vouches  bool
}

// Place is the group from which a client is served a type, by rules that say what it may read of it; nil: there are
// none. If the client may not have the type, the Place says only whether the type has a group of its own (NODE-14).
func (g Grouping) Place(client session.Peer, node *core.Node, t cache.TypeURL, reads *policy.Reads) (Place, *session.End) {
	client, node, vouches := g.taken(client, node)
	p := Place{provider: g.provider(t), key: g.keyOf(t), vouches: vouches}
	others, none := g.key.of(client, node)
	var end *session.End
	if p.Name, end = p.key.of(client, node); end != nil {
		return Place{Own: none == nil}, end
	}
	if slices.Contains(g.alone, t) {
		if g.config.EffectiveNodeMode() != config.NodeModePassthrough {
			return Place{}, &session.End{Reason: session.BadRequest, Message: fmt.Sprintf(
				"%q is listed in groups.unmultiplexable_types: it cannot be relayed for many clients at once; ask the control plane directly, or set upstream.node_mode to passthrough", t)}
		}
		p.Alone = true
	}
	if p.Name != "" && p.key.has(identityEntry) {
		p.identity = client.Identity
	}
	if g.secrets.Of(t).Secret {
		end = g.secretsOf(&p, client, node, reads)
	}
	apart := p.source > 0 || p.Alone
	differs := none != nil || p.Name != others
	p.Own = apart || differs || end != nil
	p.Name += g.headers.of(client.Headers)
	p.Headers = client.Headers
	return p, end
}

// groupName is the name of the group, or the beginning of it if it is for one stream only.
func (p Place) groupName() string { return p.prefix() + p.Name }

// Admit refuses one more group than there may be (VALID-8).
func (g Grouping) Admit(existing int) *session.End {
	if existing < g.config.Groups.Max {
		return nil
	}
	return &session.End{Reason: session.Overcrowded, Message: fmt.Sprintf(
		"there are %d groups already; raise groups.max, or use a coarser groups.key", existing)}
}
