package policy

import (
	"fmt"
	"slices"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// NodeFields says which fields of a node rules can name, for messages.
const NodeFields = "id, cluster, locality.region, locality.zone, locality.sub_zone or metadata.<path>"

// SetField sets a field of a node by the name that it has in rules, as text. It fails if there is no such field, or if
// the path of metadata is taken by a text.
func SetField(node *core.Node, name, value string) error {
	path, metadata := strings.CutPrefix(name, metadataPrefix)
	switch {
	case metadata:
		return setMetadata(node, path, value)
	case nodeFields[name] == nil:
		return fmt.Errorf("%q is no field of a node that rules can name; use %s", name, NodeFields)
	}
	if node.Locality == nil {
		node.Locality = &core.Locality{}
	}
	switch name {
	case "id":
		node.Id = value
	case "cluster":
		node.Cluster = value
	case "locality.region":
		node.Locality.Region = value
	case "locality.zone":
		node.Locality.Zone = value
	case "locality.sub_zone":
		node.Locality.SubZone = value
	}
	return nil
}

func setMetadata(node *core.Node, path, value string) error {
	steps := strings.Split(path, ".")
	if slices.Contains(steps, "") {
		return fmt.Errorf("%q is no path of metadata", path)
	}
	if node.Metadata == nil {
		node.Metadata = &structpb.Struct{}
	}
	at := node.Metadata
	for i, step := range steps {
		if at.Fields == nil {
			at.Fields = make(map[string]*structpb.Value)
		}
		is := at.Fields[step]
		switch last := i == len(steps)-1; {
		case last && is == nil:
			at.Fields[step] = structpb.NewStringValue(value)
		case is == nil:
			at.Fields[step] = structpb.NewStructValue(&structpb.Struct{})
		case last || is.GetStructValue() == nil:
			return fmt.Errorf("metadata.%s is there already", strings.Join(steps[:i+1], "."))
		}
		at = at.Fields[step].GetStructValue()
	}
	return nil
}
