package relay

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/upstream"
)

// groups are the clients that share an upstream view, by the configured key. It
// implements downstream.Groups.
type groups struct {
	config   *config.Config
	upstream upstream.Config
	hub      fanout.Config
	options  upstream.ClientOptions
	log      *slog.Logger
	run      func(func(context.Context)) // starts a goroutine that Close ends

	mu     sync.Mutex
	byName map[string]*group
}

// group is one Hub and what fills it.
type group struct {
	hub    *fanout.Hub
	cancel context.CancelFunc
	users  int // streams, one for each of their types
	linger *time.Timer
}

// keyHashLength is how much of a key's hash names a group, in hex digits.
const keyHashLength = 16

// Key is the group key of a node: the configured fields, in their order (NODE-4).
// The empty key is the default group's.
func (g *groups) Key(node *core.Node) (string, *downstream.End) {
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
	return v.String()
}

// Hub is the Hub that serves a type to a client.
func (g *groups) Hub(client downstream.Peer, node *core.Node, key string, t cache.TypeURL) (*fanout.Hub, func(), *downstream.End) {
	name, fields := key, g.config.Groups.Key
	if t == cache.Secret && !g.config.Groups.ShareSecrets {
		// NODE-6: secrets are the client's own.
		switch {
		case client.Identity != "":
			name = "secrets of " + client.Identity + ";" + key
		case client.Local:
			whole, err := proto.MarshalOptions{Deterministic: true}.Marshal(node)
			if err != nil {
				return nil, nil, &downstream.End{Reason: downstream.BadRequest, Message: "the node cannot be encoded: " + err.Error()}
			}
			name, fields = "secrets of node "+string(whole), nil
		default:
			return nil, nil, &downstream.End{Reason: downstream.Forbidden, Message: "secrets are served to clients with a verified certificate, or over loopback or a Unix socket; set downstream.tls.client_ca, or groups.share_secrets"}
		}
	}
	gr, end := g.join(name, func() *core.Node { return g.node(name, fields, node) })
	if end != nil {
		return nil, nil, end
	}
	return gr.hub, func() { g.leave(name, gr) }, nil
}

// join enters a group, which is made if there is none.
func (g *groups) join(name string, node func() *core.Node) (*group, *downstream.End) {
	g.mu.Lock()
	defer g.mu.Unlock()
	gr := g.byName[name]
	if gr == nil {
		if len(g.byName) >= g.config.Groups.Max {
			return nil, &downstream.End{Reason: downstream.Overcrowded, Message: fmt.Sprintf(
				"there are %d groups already; raise groups.max, or use a coarser groups.key", len(g.byName))}
		}
		gr = g.start(name, node())
		g.byName[name] = gr
	}
	gr.users++
	if gr.linger != nil {
		gr.linger.Stop()
		gr.linger = nil
	}
	return gr, nil
}

// leave exits a group; the last one out ends it after a while (NODE-10).
func (g *groups) leave(name string, gr *group) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if gr.users--; gr.users > 0 || name == "" {
		return // the default group stays
	}
	gr.linger = time.AfterFunc(g.config.Timers.GroupLinger, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if gr.users == 0 && g.byName[name] == gr {
			delete(g.byName, name)
			gr.cancel()
		}
	})
}

// start makes a group and opens its streams when somebody wants something.
func (g *groups) start(name string, node *core.Node) *group {
	gr := &group{hub: fanout.NewHub(g.hub)}
	c := g.upstream
	c.Node = node
	o := g.options
	o.Hub = gr.hub
	if name != "" {
		o.Log = o.Log.With("group", shortHash(name))
		g.log.Info("group opened", "group", shortHash(name), "upstream_node", node.GetId())
	}
	client := upstream.NewClient(c, o)
	started := make(chan struct{})
	g.run(func(ctx context.Context) {
		ctx, gr.cancel = context.WithCancel(ctx)
		close(started)
		client.Run(ctx)
	})
	<-started
	return gr
}

// stop ends the timers of groups that linger.
func (g *groups) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, gr := range g.byName {
		if gr.linger != nil {
			gr.linger.Stop()
		}
	}
}

// hubs are the groups' Hubs, by the short names that logs use.
func (g *groups) hubs() map[string]*fanout.Hub {
	g.mu.Lock()
	defer g.mu.Unlock()
	hubs := make(map[string]*fanout.Hub, len(g.byName))
	for name, gr := range g.byName {
		if name != "" {
			name = shortHash(name)
		}
		hubs[name] = gr.hub
	}
	return hubs
}

// node is what a group says of itself upstream (NODE-7): the configured node as it
// stands, or in template mode an id made of the key, and the fields of the key.
// fields is nil for a group whose key is a whole node.
func (g *groups) node(name string, fields []string, client *core.Node) *core.Node {
	node := staticNode(g.config)
	if g.config.EffectiveNodeMode() != config.NodeModeTemplate || name == "" {
		return node
	}
	if fields == nil {
		node = proto.CloneOf(client)
	}
	if fields != nil || node.GetId() == "" {
		node.Id = "xds-relay/" + shortHash(name)
	}
	for _, field := range fields {
		copyField(node, client, field)
	}
	withFeatures(node)
	return node
}

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

// staticNode is upstream.node.
func staticNode(c *config.Config) *core.Node {
	n := c.Upstream.Node
	node := &core.Node{Id: n.ID, Cluster: n.Cluster}
	if n.Locality != (config.Locality{}) {
		node.Locality = &core.Locality{Region: n.Locality.Region, Zone: n.Locality.Zone, SubZone: n.Locality.SubZone}
	}
	if len(n.Metadata) > 0 {
		// Validate has seen to it that it can be expressed.
		node.Metadata, _ = structpb.NewStruct(n.Metadata)
	}
	withFeatures(node)
	return node
}

// agent is the relay's user agent; features are what it implements itself, to be
// told upstream (NODE-8).
const agent = "xds-relay"

var features = []string{
	"envoy.lrs.supports_send_all_clusters",
}

func withFeatures(node *core.Node) {
	if node.UserAgentName == "" {
		node.UserAgentName = agent
	}
	for _, f := range features {
		if !slices.Contains(node.ClientFeatures, f) {
			node.ClientFeatures = append(node.ClientFeatures, f)
		}
	}
}
