package relay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	xds "github.com/cncf/xds/go/xds/core/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/hop"
	upsession "github.com/xds-relay/xds-relay/upstream/session"
)

// nodes are nodes that differ from one another in one field each.
func nodes() (all []*core.Node) {
	base := func() *core.Node {
		return &core.Node{
			Id: "n", Cluster: "c", Locality: &core.Locality{Region: "r", Zone: "z", SubZone: "s"}, UserAgentName: "envoy",
			UserAgentVersionType: &core.Node_UserAgentVersion{UserAgentVersion: "1"},
			Metadata:             &structpb.Struct{Fields: map[string]*structpb.Value{"KEY": structpb.NewStringValue("v")}},
			DynamicParameters:    parameters("prod"), ClientFeatures: []string{"f"},
		}
	}
	all = append(all, base())
	fields := base().ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		n := base()
		if f := fields.Get(i); !f.IsList() || f.Kind() == protoreflect.StringKind {
			n.ProtoReflect().Clear(f)
			all = append(all, n)
		}
	}
	other := base()
	other.DynamicParameters = parameters("test")
	unknown := base()
	unknown.ProtoReflect().SetUnknown([]byte{0xfa, 0x3f, 0x01, 'x'}) // field 1023
	features := base()
	features.ClientFeatures = []string{"f", "envoy.config.supports-resource-ttl"}
	return append(all, other, unknown, features)
}

func parameters(env string) map[string]*xds.ContextParams {
	return map[string]*xds.ContextParams{"CDS": {Params: map[string]string{"env": env}}}
}

// TestWhatAGroupSaysIsInItsKey: whatever the mode and the key, clients of one group have it say the same of
// itself upstream, with the one exception of dynamic parameters (UP-21, NODE-2). So nothing else that a client
// says of itself can have the streams of others refused.
func TestWhatAGroupSaysIsInItsKey(t *testing.T) {
	varied := false
	for _, set := range []string{
		"groups.key=[]", "groups.key=[id]", "groups.key=[cluster,locality.region,locality.zone,locality.sub_zone]", "groups.key=[metadata.KEY]",
		"groups.key=[user_agent_name,user_agent_version]", "groups.key=[client_features]", "groups.key=[dynamic_parameters]", "groups.key=[node]",
		"groups.key=[node,dynamic_parameters]", "groups.profile=sidecar", "upstream.node_mode=static groups.key=[node]", "upstream.node_mode=template groups.key=[node]",
	} {
		g := grouping(t, strings.Fields(set)...)
		for _, typ := range []cache.TypeURL{cache.Cluster, cache.Secret} {
			says := make(map[string]*core.Node)
			for _, node := range nodes() {
				p, end := g.Place(session.Peer{Local: true}, node, typ, nil)
				if end != nil {
					t.Fatal(end)
				}
				said := proto.CloneOf(g.Node(p, node))
				if g.Varies(p) {
					varied, said.DynamicParameters = true, nil
				}
				if first := says[p.Name]; first == nil {
					says[p.Name] = said
				} else if !proto.Equal(first, said) {
					t.Errorf("%s, %s: group %q says\n%v, or\n%v", set, typ.Short(), p.Name, first, said)
				}
			}
		}
	}
	if !varied {
		t.Error("no group's dynamic parameters vary")
	}
}

// TestClaims: what is refused ends those who say it, and them alone, and cannot be said for a minute (UP-21).
func TestClaims(t *testing.T) {
	now := time.Unix(1000, 0)
	w := NewClaims()
	by := func(name string, via ...string) session.Peer {
		return session.Peer{Address: name, Relay: true, Via: via}
	}
	prod, test := &core.Node{Id: "n", DynamicParameters: parameters("prod")}, &core.Node{Id: "n", DynamicParameters: parameters("test")}
	join := func(client session.Peer, node *core.Node) (*Claimant, *session.End) { return w.Join(client, node, now) }
	if s, end := join(by("plain"), nil); s != nil || end != nil {
		t.Errorf("a client that says nothing is remembered: %v (%v)", s, end)
	}
	twice := by("near", "near")
	twice.Stream = "a stream with two types"
	_, _ = join(twice, prod)
	_, _ = join(twice, prod)
	_, _ = join(by("far", "far", "near"), prod)
	renews, _ := join(by("direct"), prod)
	if end := w.Renew(renews, test, now); end != nil {
		t.Error(end)
	}
	ended, _ := w.Refuse(upsession.Refusal{Claim: upsession.Claim{Via: []string{"far", "near"}}, Message: "no"}, now)
	if len(ended) != 1 || ended[0].Address != "far" {
		t.Errorf("%v are ended for their way", ended)
	}
	ended, node := w.Refuse(upsession.Refusal{Claim: upsession.Claim{Node: test}, Message: "no"}, now)
	if len(ended) != 1 || ended[0].Address != "direct" || node != prod {
		t.Errorf("%v are ended for their node, and the group says %v", ended, node)
	}
	for range 2 {
		_, way := join(by("far again", "far", "near"), prod)
		_, said := join(by("direct again"), test)
		if refused := way != nil && said != nil && way.Reason == session.RefusedUpstream; refused != now.Before(time.Unix(1060, 0)) {
			t.Errorf("at %v: %v, %v", now.Unix(), way, said)
		}
		now = now.Add(refusedFor)
	}
	for i := range 2 * maxRefused {
		w.Refuse(upsession.Refusal{Claim: upsession.Claim{Via: []string{fmt.Sprint(i)}}}, now)
	}
	if ended, _ = w.Refuse(upsession.Refusal{Claim: upsession.Claim{Node: prod}}, now); len(ended) != 3 {
		t.Errorf("%v are ended for their node, want one for each stream", ended)
	}
	if len(w.refused) != maxRefused {
		t.Errorf("%d claims are remembered as refused", len(w.refused))
	}
	if got := hop.Value(w.Via()); got != "far,near" {
		t.Errorf("the longest way is %q", got)
	}
}
