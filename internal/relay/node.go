package relay

import (
	"slices"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xds-relay/xds-relay/internal/config"
)

// What a group says of itself upstream (NODE-7, NODE-8).

// agent is the relay's user agent.
const agent = "xds-relay"

// hopFeatures are those that each hop has for itself: what a client can do with a
// message of ours says nothing of what we can do with one of the control plane's
// (NODE-8, H-25).
var hopFeatures = []string{
	"xds.config.supports-resource-ttl", "envoy.config.supports-resource-ttl",
	"xds.config.resource-in-sotw", "envoy.config.resource-in-sotw",
	"xds.config.supports-resource-in-sotw", "envoy.config.supports-resource-in-sotw",
	"xds.config.supports-resource-locators",
	"envoy.lrs.supports_send_all_clusters",
}

// ownFeatures are those that the relay itself implements (TTL-11). A Delta upstream
// has no use for the second; which variant a stream will have is not known here.
var ownFeatures = []string{"xds.config.supports-resource-ttl", "xds.config.resource-in-sotw"}

// contentFeatures are a client's features on which the content of what it is sent
// may depend, in order.
func contentFeatures(node *core.Node) []string {
	features := slices.DeleteFunc(slices.Clone(node.GetClientFeatures()), func(f string) bool { return slices.Contains(hopFeatures, f) })
	slices.Sort(features)
	return slices.Compact(features)
}

// Node is what a group says of itself upstream, made of a client's node: the
// configured node as it stands; in template mode an id made of the key, and the
// fields of the key; in passthrough mode the client's, to which those of all others
// in the group are equal. In any mode it says the identity of the group's clients, if it
// is one and the configuration wants that, and none that a client says of itself (NODE-6).
func (g Grouping) Node(p Place, client *core.Node) *core.Node {
	if !p.vouches {
		client = withoutIdentity(client)
	}
	node := g.staticNode(p.provider)
	switch mode := g.config.EffectiveNodeMode(); {
	case client == nil || p.Name == "" || mode == config.NodeModeStatic:
	case mode == config.NodeModePassthrough, p.whole:
		node = proto.CloneOf(client)
		node.ClientFeatures = advertised(contentFeatures(client))
	default:
		node.Id = "xds-relay/" + shortHash(p.Name)
		for _, entry := range p.key {
			copyField(node, client, entry)
		}
	}
	if p.key.has(featuresEntry) || p.key.has(config.WholeNode) {
		node.ClientFeatures = advertised(contentFeatures(client))
	}
	if p.identity != "" && g.config.Groups.SendIdentity {
		sayIdentity(node, p.identity)
	}
	return node
}

// advertised are features of a key and our own (NODE-8).
func advertised(ofKey []string) []string {
	features := slices.Concat(ofKey, ownFeatures)
	slices.Sort(features)
	return slices.Compact(features)
}

// Varies: a client whose node changes, but not its key, has the group say so upstream (NODE-2). Only
// dynamic parameters can: whatever else a group says upstream of a client is in its key.
func (g Grouping) Varies(p Place) bool {
	return g.config.EffectiveNodeMode() == config.NodeModePassthrough && !p.key.has(parametersEntry)
}

// Claim is a node as far as it is not the same for the whole group.
func (g Grouping) Claim(p Place, node *core.Node) *core.Node {
	if g.Varies(p) {
		return node
	}
	return nil
}

// copyField copies what an entry of a key stands for from a client's node.
func copyField(to, from *core.Node, entry string) {
	locality := func() *core.Locality {
		if to.Locality == nil {
			to.Locality = &core.Locality{}
		}
		return to.Locality
	}
	switch {
	case entry == "id":
		to.Id = from.GetId()
	case entry == "cluster":
		to.Cluster = from.GetCluster()
	case entry == "locality.region":
		locality().Region = from.GetLocality().GetRegion()
	case entry == "locality.zone":
		locality().Zone = from.GetLocality().GetZone()
	case entry == "locality.sub_zone":
		locality().SubZone = from.GetLocality().GetSubZone()
	case entry == "user_agent_name":
		to.UserAgentName = from.GetUserAgentName()
	case entry == "user_agent_version":
		to.UserAgentVersionType = from.GetUserAgentVersionType()
	case entry == parametersEntry:
		to.DynamicParameters = from.GetDynamicParameters()
	case entry == config.WholeNode:
		parameters := to.DynamicParameters
		proto.Reset(to)
		proto.Merge(to, fixed(from))
		to.DynamicParameters = parameters
	case strings.HasPrefix(entry, metadataPrefix):
		copyMetadata(to, from, strings.Split(strings.TrimPrefix(entry, metadataPrefix), "."))
	}
}

func copyMetadata(to, from *core.Node, path []string) {
	v := metadataOf(from, path)
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
func (g Grouping) StaticNode() *core.Node { return g.staticNode(provider{}) }

// NodeFor is what the default group says to a source of that name.
func (g Grouping) NodeFor(source string) *core.Node {
	at := 1 + slices.IndexFunc(g.config.Upstream.ByType, func(t config.TypeUpstream) bool { return t.Name == source })
	return g.staticNode(provider{source: at})
}

func (g Grouping) staticNode(o provider) *core.Node {
	n := g.config.Upstream.Sources()[o.source].Node
	node := &core.Node{Id: n.ID, Cluster: n.Cluster, UserAgentName: agent, ClientFeatures: advertised(nil)}
	if n.Locality != (config.Locality{}) {
		node.Locality = &core.Locality{Region: n.Locality.Region, Zone: n.Locality.Zone, SubZone: n.Locality.SubZone}
	}
	if len(n.Metadata) > 0 {
		// Validate has seen to it that it can be expressed.
		node.Metadata, _ = structpb.NewStruct(n.Metadata)
	}
	return node
}
