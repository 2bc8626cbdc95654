package config

import "slices"

// Groups says which clients share one upstream stream and its resources.
// Sharing is right only if the control plane's answers depend on no other
// fields of the client's node than those of Key (NODE-5).
type Groups struct {
	// Profile sets the default of Key (NODE-4): aggregate, for many clients
	// behind one upstream view, is the empty list; sidecar, for a relay beside
	// its client, is [node], so that nothing is shared and the client's node
	// goes upstream.
	// Default: aggregate.
	Profile Profile `yaml:"profile"`

	// Key lists the fields that tell groups apart: id, cluster,
	// locality.region, locality.zone, locality.sub_zone, user_agent_name,
	// user_agent_version, metadata.<path>, client_features (except those that
	// each hop handles itself, such as TTLs), dynamic_parameters, node (the
	// whole node except the dynamic parameters, so that these may change),
	// identity (of the client's certificate) and constant.<text>. Empty means
	// the profile's; see [Config.EffectiveKey].
	// Default: [].
	Key []string `yaml:"key"`

	// Types gives types a key other than Key, and so streams of their own.
	// Default: [].
	Types []TypeKey `yaml:"types"`

	// UnmultiplexableTypes lists types that are messages to one server rather
	// than subscriptions, such as Istio's health reports. They are refused; with
	// passthrough each client has a stream of its own for them (NODE-12).
	// Default: [].
	UnmultiplexableTypes []string `yaml:"unmultiplexable_types"`

	// ForwardHeaders lists headers of clients' streams, such as authorization, that
	// go up with the streams of their groups: to upstream.address, and to the
	// fallbacks that say forward_headers. They are part of every group's key,
	// secrets included: clients share a group only if they send the same values, in
	// the same order, or none. The values stay in memory: a group's name contains
	// their HMAC-SHA-256 under the key of cache.snapshot.key_file. Without a key
	// file the relay makes a key at its start, and such groups are not in the
	// snapshot, since the next process could not find them there. A client with
	// another token, also a rotated one, belongs to another group, which no snapshot
	// fits; so groups.max must allow for the old and the new group. A client's
	// headers may have 8 KiB. x-forwarded-client-cert is refused unless every
	// listener is plaintext on loopback or a Unix socket, where only a proxy on this
	// host can have set it. This cannot be combined with downstream.ready_types
	// (NODE-13).
	// Default: [].
	ForwardHeaders []string `yaml:"forward_headers"`

	// DefaultGroup admits a client whose first message has no node although
	// a key needs one, to a group of its own kind, instead of refusing it
	// (NODE-3).
	// Default: false.
	DefaultGroup bool `yaml:"default_group"`

	// Secrets says who is served Secrets, and types that types[].secret makes secret
	// (NODE-6, H-23). policy: whom a rule of authz.rules_file allows their names.
	// Without that file clients on loopback and on Unix sockets are served them as
	// with identity, and no others. identity: each client that proves who it is, under
	// any name for which it asks, from a group of its identity's own; the control
	// plane sees the relay, and not the client, unless send_identity or
	// forward_headers is set. On loopback and Unix sockets clients with equal nodes
	// share a group. shared: they are like any other type. Empty means policy, or
	// shared with share_secrets; see [Groups.EffectiveSecrets].
	// Default: "".
	Secrets Secrets `yaml:"secrets"`

	// ShareSecrets set to true is secrets: shared, in an older spelling.
	// Default: false.
	ShareSecrets bool `yaml:"share_secrets"`

	// SendIdentity puts the verified identity of a group's clients into the metadata
	// of its upstream node, as xds-relay.client_identity, so that the control plane
	// can decide what they get. These are the groups whose key has identity, and those
	// of one identity's Secrets. No client can say it of itself: the relay removes the
	// key from every client's node, with or without this setting. Only a client that
	// is listed in downstream.relays may say it, of the client that it speaks for, and
	// is then taken for that one (NODE-6).
	// Default: false.
	SendIdentity bool `yaml:"send_identity"`

	// Max is the largest number of groups (VALID-8). Each has its own streams to the
	// control plane. A group whose clients have left in an outage stays, and counts.
	// It makes room for a new group only if it has no resources (NODE-10). When there
	// are as many as this, a client with fewer groups than another one still gets one:
	// docs/operations.md, "When the relay is full".
	// Default: 1000.
	Max int `yaml:"max"`
}

// TypeKey is the group key of one type.
type TypeKey struct {
	// TypeURL is the type, as a type URL or a short name. Required.
	TypeURL string `yaml:"type_url"`

	// Key is as groups.key; an empty one is that of the default group.
	// Default: [].
	Key []string `yaml:"key"`
}

// EffectiveSecrets resolves the empty groups.secrets, and groups.share_secrets (NODE-6).
func (g *Groups) EffectiveSecrets() Secrets {
	switch {
	case g.Secrets != "":
		return g.Secrets
	case g.ShareSecrets:
		return SecretsShared
	}
	return SecretsPolicy
}

// WholeNode is the entry of a key that stands for the client's node.
const WholeNode = "node"

// EffectiveKey resolves the empty groups.key (NODE-4).
func (c *Config) EffectiveKey() []string {
	if len(c.Groups.Key) == 0 && c.Groups.Profile == ProfileSidecar {
		return []string{WholeNode}
	}
	return c.Groups.Key
}

// EffectiveNodeMode resolves the empty upstream.node_mode (NODE-7).
func (c *Config) EffectiveNodeMode() NodeMode {
	none, whole := true, true
	for _, key := range c.keys() {
		none = none && len(key) == 0
		whole = whole && slices.Contains(key, WholeNode)
	}
	switch {
	case c.Upstream.NodeMode != "":
		return c.Upstream.NodeMode
	case whole:
		return NodeModePassthrough
	case none:
		return NodeModeStatic
	}
	return NodeModeTemplate
}

// keys are all group keys in use.
func (c *Config) keys() [][]string {
	keys := [][]string{c.EffectiveKey()}
	for _, t := range c.Groups.Types {
		keys = append(keys, t.Key)
	}
	return keys
}
