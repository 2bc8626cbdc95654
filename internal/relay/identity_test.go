package relay

import (
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/config"
)

// saying is a node that says an identity of itself, or none.
func saying(identity *structpb.Value) *core.Node {
	n := &core.Node{Id: "a", Cluster: "east", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"team": structpb.NewStringValue("blue")}}}
	if identity != nil {
		n.Metadata.Fields[config.ClientIdentity] = identity
	}
	return n
}

// identitySets are configurations in which identities may be sent, and not.
func identitySets() (sets [][]string) {
	for _, send := range []string{"groups.send_identity=true", "groups.send_identity=false"} {
		for _, set := range []string{
			"groups.key=[]", "groups.key=[identity]", "groups.key=[metadata.xds-relay.client_identity]", "groups.key=[node]", "groups.profile=sidecar", "groups.key=[identity,node]",
			"upstream.node_mode=static groups.key=[identity]", "upstream.node_mode=template groups.key=[node]", "upstream.node_mode=passthrough groups.key=[node,identity]",
		} {
			sets = append(sets, append(strings.Fields(set), send, "groups.secrets=identity"))
		}
	}
	return sets
}

// TestNobodyClaimsAnIdentity: whatever the mode and the key, an identity in a client's node does not choose its
// group, and does not go up (NODE-6).
func TestNobodyClaimsAnIdentity(t *testing.T) {
	alone := saying(structpb.NewStringValue("red"))
	delete(alone.Metadata.Fields, "team")
	for _, set := range identitySets() {
		g := grouping(t, append(mutualTLS, set...)...)
		for _, typ := range []cache.TypeURL{cache.Cluster, cache.Secret} {
			for _, client := range []session.Peer{{Local: true, Relay: true}, {Identity: "blue"}, {Identity: "blue", Local: true, Relay: true}} {
				for _, claim := range []*structpb.Value{structpb.NewStringValue("red"), structpb.NewStringValue(""), structpb.NewNumberValue(1)} {
					honest, liar := saying(nil), saying(claim)
					p, end := g.Place(client, liar, typ, nil)
					if want := place(g, client, honest, typ); end == nil && p.Name != want {
						t.Errorf("%v, %s: %+v is in %s, want %s", set, typ.Short(), client, p.Name, want)
					}
					if end != nil {
						continue
					}
					if got, want := g.Node(p, liar), g.Node(p, honest); !proto.Equal(got, want) {
						t.Errorf("%v, %s: %+v has the group say\n%v, want\n%v", set, typ.Short(), client, got, want)
					}
					if said := identityIn(g.Node(p, liar)); said != p.identity && said != "" {
						t.Errorf("%v, %s: %+v has the group say %q", set, typ.Short(), client, said)
					}
					if identityIn(liar) != claim.GetStringValue() {
						t.Fatal("the client's own node was changed")
					}
					was, _ := g.Key(honest)
					if is, _ := g.Key(liar); is != was {
						t.Errorf("%v: a claim makes another client of one: %q, %q", set, was, is)
					}
				}
				if p, end := g.Place(client, alone, typ, nil); end == nil && p.identity == "" && g.Node(p, alone).GetMetadata() != nil {
					t.Errorf("%v, %s: what is left of the metadata is %v", set, typ.Short(), g.Node(p, alone))
				}
			}
		}
	}
}

// TestWhoseGroupItIs: the identity goes up of groups that are one identity's, and of no others (NODE-6).
func TestWhoseGroupItIs(t *testing.T) {
	for _, tt := range []struct {
		set     string
		client  session.Peer
		typ     cache.TypeURL
		want    string
		without bool // the client has no node
	}{
		{"groups.key=[identity]", session.Peer{Identity: "blue"}, cache.Cluster, "blue", false},
		{"groups.key=[identity]", session.Peer{Identity: "blue"}, cache.Secret, "blue", false},
		{"groups.key=[identity,id] groups.default_group=true", session.Peer{Identity: "blue"}, cache.Cluster, "", true},
		{"groups.key=[identity,id] groups.default_group=true", session.Peer{Identity: "blue"}, cache.Secret, "blue", true},
		{"groups.key=[id]", session.Peer{Identity: "blue"}, cache.Cluster, "", false},
		{"groups.key=[id]", session.Peer{Identity: "blue"}, cache.Secret, "blue", false},
		{"groups.key=[id]", session.Peer{Local: true}, cache.Secret, "", false},
		{"groups.key=[identity] groups.secrets=shared", session.Peer{Identity: "blue"}, cache.Secret, "blue", false},
	} {
		g := grouping(t, append(append(mutualTLS, "groups.secrets=identity", "groups.send_identity=true"), strings.Fields(tt.set)...)...)
		node := saying(nil)
		if tt.without {
			node = nil
		}
		p, end := g.Place(tt.client, node, tt.typ, nil)
		if end != nil {
			t.Fatal(end)
		}
		if got := identityIn(g.Node(p, node)); got != tt.want {
			t.Errorf("%s: %s of %+v: the group is %q's, want %q's", tt.set, tt.typ.Short(), tt.client, got, tt.want)
		}
	}
}

// TestRelaysSpeakForTheirClients: a listed relay says who its stream is for. Then it is for that one, as if he had
// come himself, and changes with that; without the setting the node says it, wherever it goes up (NODE-6).
func TestRelaysSpeakForTheirClients(t *testing.T) {
	relay := session.Peer{Identity: "relay", Relay: true}
	listed := append(mutualTLS, "downstream.relays=[relay:1]", "groups.secrets=identity")
	relay.Identity = "relay:1"
	blue, red := saying(structpb.NewStringValue("blue")), saying(structpb.NewStringValue("red"))
	for _, set := range identitySets() {
		g := grouping(t, append(listed, set...)...)
		sends, passes := g.config.Groups.SendIdentity, g.config.EffectiveNodeMode() == config.NodeModePassthrough
		for _, typ := range []cache.TypeURL{cache.Cluster, cache.Secret} {
			p, end := g.Place(relay, blue, typ, nil)
			other, _ := g.Place(relay, red, typ, nil)
			if end != nil {
				t.Fatal(end)
			}
			said := identityIn(g.Node(p, blue))
			switch {
			case said != "" && said != relay.Identity && p.Name == other.Name:
				t.Errorf("%v, %s: a group is for blue and for red: %s", set, typ.Short(), p.Name)
			case sends && p.identity != "" && said != "blue", passes && said != "blue" && p.key.has(config.WholeNode) && !sends:
				t.Errorf("%v, %s: the group is for %q", set, typ.Short(), said)
			}
			if sends && p.identity != "" {
				if himself := place(g, session.Peer{Identity: "blue"}, saying(nil), typ); himself != p.Name && !p.key.has(config.WholeNode) {
					t.Errorf("%v, %s: %s is not %s", set, typ.Short(), p.Name, himself)
				}
			}
		}
		was, _ := g.Key(blue)
		if is, _ := g.Key(red); is == was {
			t.Errorf("%v: for blue and for red it is one client: %q", set, is)
		}
	}
	g := grouping(t, append(listed, "groups.send_identity=true")...)
	if none, empty := place(g, relay, saying(nil), cache.Secret), place(g, relay, saying(structpb.NewStringValue("")), cache.Secret); none != empty || !strings.Contains(none, "relay:1") {
		t.Errorf("a relay that speaks for itself is in %q, and in %q", none, empty)
	}
	g.relays.Store(&[]string{})
	if got := place(g, relay, blue, cache.Secret); !strings.Contains(got, "relay:1") {
		t.Errorf("a relay that is not listed any more is in %q", got)
	}
}
