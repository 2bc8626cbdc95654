package relay

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/config"
)

// groupKey is a configured list of what tells groups apart (NODE-4).
type groupKey []string

const (
	identityEntry   = "identity"
	parametersEntry = "dynamic_parameters"
	featuresEntry   = "client_features"
	constantPrefix  = "constant."
	metadataPrefix  = "metadata."
)

func (k groupKey) has(entry string) bool { return slices.Contains(k, entry) }

// needsNode: the key says something only of clients that say who they are.
func (k groupKey) needsNode() bool {
	return slices.ContainsFunc(k, func(entry string) bool {
		return entry != identityEntry && !strings.HasPrefix(entry, constantPrefix)
	})
}

// of is the key's value for a client, in the order of its entries. It is readable,
// and the number of entries bounds its length.
func (k groupKey) of(client session.Peer, node *core.Node) (string, *session.End) {
	if node == nil && k.needsNode() {
		return "", nil // the default group, or Key would have refused it
	}
	if k.has(identityEntry) && client.Identity == "" {
		return "", &session.End{Reason: session.Forbidden, Message: "clients are grouped by identity, and this one has not proved any; connect with a client certificate"}
	}
	var value strings.Builder
	for _, entry := range k {
		text := ""
		if constant, ok := strings.CutPrefix(entry, constantPrefix); ok {
			text = strconv.Quote(constant)
			entry = "constant"
		} else if entry == identityEntry {
			text = strconv.Quote(client.Identity)
		} else {
			text = nodeField(node, entry)
		}
		fmt.Fprintf(&value, "%s=%s;", entry, text)
	}
	return value.String(), nil
}

// nodeField is the value of an entry that a node has, quoted, so that none can be
// taken for two.
func nodeField(node *core.Node, entry string) string {
	switch entry {
	case "id":
		return bounded(node.GetId())
	case "cluster":
		return bounded(node.GetCluster())
	case "locality.region":
		return bounded(node.GetLocality().GetRegion())
	case "locality.zone":
		return bounded(node.GetLocality().GetZone())
	case "locality.sub_zone":
		return bounded(node.GetLocality().GetSubZone())
	case "user_agent_name":
		return bounded(node.GetUserAgentName())
	case "user_agent_version":
		if v := node.GetUserAgentBuildVersion(); v != nil {
			return hashed(v)
		}
		return bounded(node.GetUserAgentVersion())
	case featuresEntry:
		return bounded(fmt.Sprintf("%q", contentFeatures(node)))
	case parametersEntry:
		return hashed(&core.Node{DynamicParameters: node.GetDynamicParameters()})
	case config.WholeNode:
		return bounded(node.GetId()) + hashed(fixed(node))
	}
	v := metadataOf(node, strings.Split(strings.TrimPrefix(entry, metadataPrefix), "."))
	if v == nil {
		return bounded("")
	}
	if s, ok := v.GetKind().(*structpb.Value_StringValue); ok {
		return bounded(s.StringValue)
	}
	return hashed(v)
}

// maxKeyText is the longest value that a key shows as it is.
const maxKeyText = 128

// bounded is a quoted text, or the hash of one that is long.
func bounded(s string) string {
	if len(s) > maxKeyText {
		return hash([]byte(s))
	}
	return strconv.Quote(s)
}

// hashed is the hash of a message. Not of its text: that differs between builds.
func hashed(m proto.Message) string {
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return "" // what came over the wire can be encoded
	}
	return hash(encoded)
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// shortHash is the name of a group in logs, headers and node ids.
func shortHash(name string) string {
	const digits = 16
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])[:digits]
}

// fixed is a node without what may change while it stays the same client (NODE-2),
// and without what each hop answers for itself (H-25).
func fixed(node *core.Node) *core.Node {
	n := proto.CloneOf(node)
	n.DynamicParameters = nil
	n.ClientFeatures = contentFeatures(node)
	return n
}

// metadataOf is the value at a path in a node's metadata, or nil.
func metadataOf(node *core.Node, path []string) *structpb.Value {
	v := structpb.NewStructValue(node.GetMetadata())
	for _, name := range path {
		v = v.GetStructValue().GetFields()[name]
	}
	return v
}
