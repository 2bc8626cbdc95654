package relay

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/internal/config"
)

// Grouping says which clients share an upstream view, and what such a group says
// of itself upstream. It is pure; the groups it names live in groups.
type Grouping struct{ config *config.Config }

// NewGrouping returns the grouping of a configuration, which must be valid.
func NewGrouping(c *config.Config) Grouping { return Grouping{c} }

// Key is the group key of a node: the configured fields, in their order (NODE-4).
// The empty key is the default group's.
func (g Grouping) Key(node *core.Node) (string, *downstream.End) {
	if len(g.config.Groups.Key) == 0 {
		return "", nil
	}
	if node == nil {
		if g.config.Groups.DefaultGroup {
			return "", nil
		}
		return "", &downstream.End{Reason: downstream.BadRequest, Message: fmt.Sprintf(
			"the first request has no node, and clients are grouped by %s; send the node, or set groups.default_group",
			strings.Join(g.config.Groups.Key, ", "))}
	}
	var key strings.Builder
	for _, field := range g.config.Groups.Key {
		fmt.Fprintf(&key, "%s=%q;", field, nodeField(node, field))
	}
	return key.String(), nil
}

// nodeField is the value of a field that groups.key may name.
func nodeField(node *core.Node, field string) string {
	switch field {
	case "id":
		return node.GetId()
	case "cluster":
		return node.GetCluster()
	case "locality.region":
		return node.GetLocality().GetRegion()
	case "locality.zone":
		return node.GetLocality().GetZone()
	case "locality.sub_zone":
		return node.GetLocality().GetSubZone()
	case "user_agent_name":
		return node.GetUserAgentName()
	}
	path, _ := strings.CutPrefix(field, "metadata.")
	v := structpb.NewStructValue(node.GetMetadata())
	for name := range strings.SplitSeq(path, ".") {
		v = v.GetStructValue().GetFields()[name]
	}
	if v == nil {
		return ""
	}
	if s, ok := v.GetKind().(*structpb.Value_StringValue); ok {
		return s.StringValue
	}
	// Not String: its form differs between builds, and with it the hash of the key.
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(v)
	if err != nil {
		return "" // a value that came over the wire can be encoded
	}
	return string(encoded)
}

// Group names the group from which a type is served to a client; the empty name is
// the default group's. upstream makes the node that the group shows upstream.
func (g Grouping) Group(client downstream.Peer, node *core.Node, key string, t cache.TypeURL) (name string, upstream func() *core.Node, end *downstream.End) {
	name, whole := key, false
	if t == cache.Secret && !g.config.Groups.ShareSecrets {
		// NODE-6: secrets are the client's own.
		switch {
		case client.Identity != "":
			name = "secrets of " + client.Identity + ";" + key
		case client.Local:
			encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(node)
			if err != nil {
				return "", nil, &downstream.End{Reason: downstream.BadRequest, Message: "the node cannot be encoded: " + err.Error()}
			}
			name, whole = "secrets of node "+string(encoded), true
		default:
			return "", nil, &downstream.End{Reason: downstream.Forbidden, Message: "secrets are served to clients with a verified certificate, or over loopback or a Unix socket; set downstream.tls.client_ca, or groups.share_secrets"}
		}
	}
	return name, func() *core.Node { return g.node(name, whole, node) }, nil
}

// Admit refuses one more group than there may be (VALID-8).
func (g Grouping) Admit(existing int) *downstream.End {
	if existing < g.config.Groups.Max {
		return nil
	}
	return &downstream.End{Reason: downstream.Overcrowded, Message: fmt.Sprintf(
		"there are %d groups already; raise groups.max, or use a coarser groups.key", existing)}
}

// node is what a group says of itself upstream (NODE-7): the configured node as it
// stands, or in template mode an id made of the key, and the fields of the key.
// whole: the group's key is the whole node of the client.
func (g Grouping) node(name string, whole bool, client *core.Node) *core.Node {
	node := g.StaticNode()
	if g.config.EffectiveNodeMode() != config.NodeModeTemplate || name == "" {
		return node
	}
	if whole && client.GetId() != "" {
		return proto.CloneOf(client)
	}
	node.Id = "xds-relay/" + shortHash(name)
	for _, field := range g.config.Groups.Key {
		copyField(node, client, field)
	}
	return node
}

// keyHashLength is how much of a key's hash names a group, in hex digits.
const keyHashLength = 16

func shortHash(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])[:keyHashLength]
}

// copyField copies a field of the key from a client's node.
func copyField(to, from *core.Node, field string) {
	locality := func() *core.Locality {
		if to.Locality == nil {
			to.Locality = &core.Locality{}
		}
		return to.Locality
	}
	switch field {
	case "id":
		to.Id = from.GetId()
	case "cluster":
		to.Cluster = from.GetCluster()
	case "locality.region":
		locality().Region = from.GetLocality().GetRegion()
	case "locality.zone":
		locality().Zone = from.GetLocality().GetZone()
	case "locality.sub_zone":
		locality().SubZone = from.GetLocality().GetSubZone()
	case "user_agent_name":
		to.UserAgentName = from.GetUserAgentName()
	default:
		copyMetadata(to, from, strings.Split(strings.TrimPrefix(field, "metadata."), "."))
	}
}

func copyMetadata(to, from *core.Node, path []string) {
	v := structpb.NewStructValue(from.GetMetadata())
	for _, name := range path {
		v = v.GetStructValue().GetFields()[name]
	}
	if v == nil {
		return
	}
	if to.Metadata == nil {
		to.Metadata = &structpb.Struct{}
	}
	s := to.Metadata
	for i, name := range path {
		if s.Fields == nil {
			s.Fields = make(map[string]*structpb.Value)
		}
		if i == len(path)-1 {
			s.Fields[name] = v
			return
		}
		if s.Fields[name].GetStructValue() == nil {
			s.Fields[name] = structpb.NewStructValue(&structpb.Struct{})
		}
		s = s.Fields[name].GetStructValue()
	}
}

// StaticNode is upstream.node, and what the default group says of itself.
func (g Grouping) StaticNode() *core.Node {
	n := g.config.Upstream.Node
	node := &core.Node{Id: n.ID, Cluster: n.Cluster, UserAgentName: agent}
	if n.Locality != (config.Locality{}) {
		node.Locality = &core.Locality{Region: n.Locality.Region, Zone: n.Locality.Zone, SubZone: n.Locality.SubZone}
	}
	if len(n.Metadata) > 0 {
		// Validate has seen to it that it can be expressed.
		node.Metadata, _ = structpb.NewStruct(n.Metadata)
	}
	return node
}

// agent is the relay's user agent. It advertises no client features of its own yet
// (NODE-8): those it will implement itself are TTLs and load reports.
const agent = "xds-relay"
