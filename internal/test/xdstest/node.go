package xdstest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	xds "github.com/cncf/xds/go/xds/core/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/structpb"
)

// The words of a node: node, cluster, region, zone, sub_zone, agent and features,
// metadata.KEY, param.TYPE.KEY and unknown.

// nodeKeys are those without an argument; nodePrefixes begin the others.
var (
	nodeKeys     = []string{"node", "cluster", "region", "zone", "sub_zone", "agent", "features", "unknown"}
	nodePrefixes = []string{"metadata.", "param."}
)

// unknownField is a field of Node that this project does not know.
const unknownField = 1000

func isNodeWord(key string) bool {
	return slices.Contains(nodeKeys, key) || slices.ContainsFunc(nodePrefixes, func(p string) bool { return strings.HasPrefix(key, p) })
}

// nodeOf is the node that a command's words describe, under an id unless it says one.
func nodeOf(id string, c Command) (*corev3.Node, error) {
	n := &corev3.Node{Id: id}
	for _, key := range slices.Sorted(maps.Keys(c.Options)) {
		value := c.Options[key]
		switch key {
		case "node":
			n.Id = value
		case "cluster":
			n.Cluster = value
		case "region", "zone", "sub_zone":
			setLocality(n, key, value)
		case "agent":
			n.UserAgentName = value
		case "features":
			var err error
			if n.ClientFeatures, err = wordList(value); err != nil {
				return nil, err
			}
		case "unknown":
			field := protowire.AppendTag(nil, unknownField, protowire.BytesType)
			n.ProtoReflect().SetUnknown(protowire.AppendString(field, value))
		}
		if path, ok := strings.CutPrefix(key, "metadata."); ok {
			if n.Metadata == nil {
				n.Metadata = &structpb.Struct{}
			}
			setMetadata(n.Metadata, strings.Split(path, "."), value)
		}
		if path, ok := strings.CutPrefix(key, "param."); ok {
			short, name, ok := strings.Cut(path, ".")
			if !ok {
				return nil, fmt.Errorf("%s: a dynamic parameter is param.TYPE.KEY=value", key)
			}
			setParameter(n, TypeURL(short), name, value)
		}
	}
	return n, nil
}

func setLocality(n *corev3.Node, key, value string) {
	if n.Locality == nil {
		n.Locality = &corev3.Locality{}
	}
	switch key {
	case "region":
		n.Locality.Region = value
	case "zone":
		n.Locality.Zone = value
	case "sub_zone":
		n.Locality.SubZone = value
	}
}

func setMetadata(s *structpb.Struct, path []string, value string) {
	if s.Fields == nil {
		s.Fields = map[string]*structpb.Value{}
	}
	if len(path) == 1 {
		s.Fields[path[0]] = structpb.NewStringValue(value)
		return
	}
	if s.Fields[path[0]].GetStructValue() == nil {
		s.Fields[path[0]] = structpb.NewStructValue(&structpb.Struct{})
	}
	setMetadata(s.Fields[path[0]].GetStructValue(), path[1:], value)
}

func setParameter(n *corev3.Node, typeURL, name, value string) {
	if n.DynamicParameters == nil {
		n.DynamicParameters = map[string]*xds.ContextParams{}
	}
	if n.DynamicParameters[typeURL] == nil {
		n.DynamicParameters[typeURL] = &xds.ContextParams{Params: map[string]string{}}
	}
	n.DynamicParameters[typeURL].Params[name] = value
}

// ownFeatures are those that a relay has itself.
var ownFeatures = []string{"xds.config.supports-resource-ttl", "xds.config.resource-in-sotw"}

// nodeWords print what a node says, id first; a user agent that is the relay's own is
// left out, and so are its own features unless asked for.
func nodeWords(node *corev3.Node, all bool) string {
	words := " node=" + quote(node.GetId())
	add := func(key, value string) {
		if value != "" {
			words += " " + key + "=" + quote(value)
		}
	}
	add("cluster", node.GetCluster())
	add("region", node.GetLocality().GetRegion())
	add("zone", node.GetLocality().GetZone())
	add("sub_zone", node.GetLocality().GetSubZone())
	if agent := node.GetUserAgentName(); agent != "xds-relay" {
		add("agent", agent)
	}
	for _, key := range slices.Sorted(maps.Keys(node.GetMetadata().GetFields())) {
		value, _ := node.GetMetadata().GetFields()[key].MarshalJSON() // of a Value that came over the wire
		add("metadata."+key, string(value))
	}
	for _, typeURL := range slices.Sorted(maps.Keys(node.GetDynamicParameters())) {
		params := node.GetDynamicParameters()[typeURL].GetParams()
		for _, name := range slices.Sorted(maps.Keys(params)) {
			add("param."+ShortName(typeURL)+"."+name, params[name])
		}
	}
	features := slices.DeleteFunc(slices.Clone(node.GetClientFeatures()), func(f string) bool { return !all && slices.Contains(ownFeatures, f) })
	add("features", strings.Join(features, ","))
	if _, _, n := protowire.ConsumeTag(node.ProtoReflect().GetUnknown()); n > 0 {
		value, _ := protowire.ConsumeString(node.ProtoReflect().GetUnknown()[n:])
		add("unknown", value)
	}
	return words
}
