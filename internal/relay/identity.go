package relay

import (
	"slices"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/config"
)

// Whom a group speaks for upstream (NODE-6). The control plane believes the relay, so that no client may say it of
// itself, wherever its node goes up; a relay downstream says it of its own clients.

// taken is who a client is for its groups, and its node as far as that counts. vouches: the client may say for
// whom it speaks.
func (g Grouping) taken(client session.Peer, node *core.Node) (_ session.Peer, _ *core.Node, vouches bool) {
	if !g.vouches(client) {
		return client, withoutIdentity(node), false
	}
	if said := identityIn(node); said != "" && g.config.Groups.SendIdentity {
		client.Identity = said
	}
	return client, node, true
}

// vouches: the client is one of downstream.relays, and known to be.
func (g Grouping) vouches(client session.Peer) bool {
	return client.Identity != "" && slices.Contains(*g.relays.Load(), client.Identity)
}

// identityIn is the identity that a node says, or "".
func identityIn(node *core.Node) string {
	return node.GetMetadata().GetFields()[config.ClientIdentity].GetStringValue()
}

// withoutIdentity is a node that says no identity. The client's own is not changed.
func withoutIdentity(node *core.Node) *core.Node {
	if _, says := node.GetMetadata().GetFields()[config.ClientIdentity]; !says {
		return node
	}
	node = proto.CloneOf(node)
	if delete(node.Metadata.Fields, config.ClientIdentity); len(node.Metadata.Fields) == 0 && len(node.Metadata.ProtoReflect().GetUnknown()) == 0 {
		node.Metadata = nil
	}
	return node
}

// sayIdentity has a node of the relay's say an identity.
func sayIdentity(node *core.Node, identity string) {
	if node.Metadata == nil {
		node.Metadata = &structpb.Struct{}
	}
	if node.Metadata.Fields == nil {
		node.Metadata.Fields = make(map[string]*structpb.Value)
	}
	node.Metadata.Fields[config.ClientIdentity] = structpb.NewStringValue(identity)
}
