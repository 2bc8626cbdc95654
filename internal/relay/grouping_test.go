package relay

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/config"
)

func grouping(t *testing.T, set ...string) Grouping {
	t.Helper()
	c, err := config.Load("", set)
	if err != nil {
		t.Fatal(err)
	}
	return NewGrouping(c)
}

var mutualTLS = []string{"downstream.tls.cert=a", "downstream.tls.key=b", "downstream.tls.client_ca=c"}

// place is the name of a client's group, or why it has none.
func place(g Grouping, client session.Peer, node *core.Node, t cache.TypeURL) string {
	p, end := g.Place(client, node, t, nil)
	if end != nil {
		return string(end.Reason)
	}
	return p.Name
}

// TestIdentityIsPartOfTheKey: what a certificate proves can tell groups apart, and
// nothing that a client says of itself can take its place (NODE-4, H-23).
func TestIdentityIsPartOfTheKey(t *testing.T) {
	g := grouping(t, append(mutualTLS, "groups.key=[identity,cluster]", "groups.secrets=identity")...)
	blue, red := session.Peer{Identity: "spiffe://x/blue"}, session.Peer{Identity: "spiffe://x/red"}
	node := &core.Node{Id: "a", Cluster: `east";identity="spiffe://x/red`}
	for _, tt := range []struct {
		client session.Peer
		typ    cache.TypeURL
		want   string
	}{
		{blue, cache.Cluster, `identity="spiffe://x/blue";cluster="east\";identity=\"spiffe://x/red";`},
		{blue, cache.Secret, `identity="spiffe://x/blue";cluster="east\";identity=\"spiffe://x/red";`}, // the client's own already
		{red, cache.Cluster, `identity="spiffe://x/red";cluster="east\";identity=\"spiffe://x/red";`},
		{session.Peer{Local: true}, cache.Cluster, "forbidden"},
		{session.Peer{}, cache.Secret, "forbidden"},
	} {
		if got := place(g, tt.client, node, tt.typ); got != tt.want {
			t.Errorf("%+v, %s: %s, want %s", tt.client, tt.typ.Short(), got, tt.want)
		}
	}
	if key, end := g.Key(node); end != nil || strings.HasPrefix(key, "identity") {
		t.Errorf("a node's key is %q, %v", key, end)
	}
}

// TestSecretsAreKeptApart: whatever the key of the other types (NODE-6).
func TestSecretsAreKeptApart(t *testing.T) {
	one := &core.Node{Id: "a", Cluster: "east"}
	other := &core.Node{Id: "a", Cluster: "west"}
	local := session.Peer{Local: true}
	blue := session.Peer{Identity: "blue", Local: true}
	for _, set := range []string{"groups.key=[]", "groups.key=[id]", "groups.profile=sidecar", `groups.types=[{"type_url":"SDS","key":["id"]}]`} {
		t.Run(set, func(t *testing.T) {
			g := grouping(t, set, "groups.secrets=identity")
			names := map[string]string{}
			for _, client := range []session.Peer{local, blue, {Identity: "red"}} {
				for _, node := range []*core.Node{one, other} {
					name := place(g, client, node, cache.Secret)
					who := client.Identity
					if who == "" {
						who = node.GetCluster()
					}
					if before, taken := names[name]; taken && before != who {
						t.Errorf("%s and %s share %q", who, before, name)
					}
					names[name] = who
				}
			}
			if got := place(g, session.Peer{}, one, cache.Secret); got != string(session.Forbidden) {
				t.Errorf("a stranger's secrets: %s", got)
			}
		})
	}
	for _, set := range []string{"groups.share_secrets=true", "groups.secrets=shared"} {
		if got := place(grouping(t, set), session.Peer{}, one, cache.Secret); got != "" {
			t.Errorf("%s: secrets are in %q", set, got)
		}
	}
}

// TestSecretsWithoutANode: who says nothing of itself is in the default group with others of its
// kind, and has secrets of its own all the same: the key says nothing of it, whatever it lists
// (NODE-6).
func TestSecretsWithoutANode(t *testing.T) {
	for _, set := range []string{"groups.key=[identity,cluster]", "groups.profile=sidecar"} {
		g := grouping(t, append(mutualTLS, set, "groups.default_group=true", "groups.secrets=identity")...)
		for _, tt := range []struct {
			client session.Peer
			want   string
		}{
			{session.Peer{Identity: "blue"}, `secrets of "blue";`},
			{session.Peer{Identity: "red", Local: true}, `secrets of "red";`},
			{session.Peer{Local: true}, "secrets of "},
			{session.Peer{}, "forbidden"},
		} {
			if got := place(g, tt.client, nil, cache.Secret); got != tt.want {
				t.Errorf("%s, %+v: %q, want %q", set, tt.client, got, tt.want)
			}
			if got := place(g, tt.client, nil, cache.Cluster); got != "" {
				t.Errorf("%s, %+v: clusters are in %q", set, tt.client, got)
			}
		}
	}
}

// TestRefusalsOfOneType: what is refused is the type alone if its group is its own, and else
// whatever belongs to that group (NODE-14).
func TestRefusalsOfOneType(t *testing.T) {
	stranger, node := session.Peer{}, &core.Node{Id: "a"}
	for _, tt := range []struct {
		set  []string
		typ  cache.TypeURL
		want bool
	}{
		{nil, cache.Secret, true},
		{[]string{"groups.key=[id]"}, cache.Secret, true},
		{[]string{"groups.profile=sidecar"}, cache.Secret, true},
		{append(mutualTLS, "groups.key=[identity]"), cache.Secret, false},
		{append(mutualTLS, "groups.key=[identity]"), cache.Cluster, false},
		{append(mutualTLS, `groups.types=[{"type_url":"EDS","key":["identity"]}]`), cache.Endpoint, true},
		{append(mutualTLS, "groups.key=[identity]", `groups.types=[{"type_url":"EDS","key":["identity","id"]}]`), cache.Endpoint, false},
		{[]string{`groups.unmultiplexable_types=["RTDS"]`}, cache.Runtime, false},
	} {
		if p, end := grouping(t, tt.set...).Place(stranger, node, tt.typ, nil); end == nil || p.Own != tt.want {
			t.Errorf("%v, %s: %v, of its own: %v, want %v", tt.set, tt.typ.Short(), end, p.Own, tt.want)
		}
	}
}

// TestGroups_NoCrossTalk: for any key, two clients share a group if, and only if, they
// are alike in all that the key lists (NODE-4, H-23).
func TestGroups_NoCrossTalk(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	word := func() string { return []string{"", "a", `b"`, "a;cluster=", strings.Repeat("a", 200)}[random.IntN(5)] }
	entries := map[string]func(session.Peer, *core.Node) string{
		"identity":        func(c session.Peer, _ *core.Node) string { return c.Identity },
		"id":              func(_ session.Peer, n *core.Node) string { return n.GetId() },
		"cluster":         func(_ session.Peer, n *core.Node) string { return n.GetCluster() },
		"locality.zone":   func(_ session.Peer, n *core.Node) string { return n.GetLocality().GetZone() },
		"user_agent_name": func(_ session.Peer, n *core.Node) string { return n.GetUserAgentName() },
		"metadata.team": func(_ session.Peer, n *core.Node) string {
			return n.GetMetadata().GetFields()["team"].GetStringValue()
		},
		"constant.x": func(session.Peer, *core.Node) string { return "x" },
	}
	for range 200 {
		var key []string
		for _, entry := range slices.Sorted(maps.Keys(entries)) {
			if random.IntN(2) == 0 {
				key = append(key, entry)
			}
		}
		g := grouping(t, append(mutualTLS, "groups.key=["+strings.Join(key, ",")+"]")...)
		alike := map[string]string{} // what the key lists, to the group's name
		groups := map[string]string{}
		for range 200 {
			client := session.Peer{Identity: "spiffe://" + word()}
			node := &core.Node{
				Id: word(), Cluster: word(), Locality: &core.Locality{Zone: word()},
				UserAgentName: word(),
				Metadata:      &structpb.Struct{Fields: map[string]*structpb.Value{"team": structpb.NewStringValue(word())}},
			}
			var listed []string
			for _, entry := range key {
				listed = append(listed, entries[entry](client, node))
			}
			what, name := fmt.Sprintf("%q", listed), place(g, client, node, cache.Cluster)
			if other, seen := alike[what]; seen && other != name {
				t.Fatalf("key %v: clients alike in %s are in %s and in %s", key, what, name, other)
			}
			if other, seen := groups[name]; seen && other != what {
				t.Fatalf("key %v: %s has clients with %s and with %s", key, name, what, other)
			}
			alike[what], groups[name] = name, what
		}
	}
}

// TestKeysAreBounded: a client cannot make a name that costs memory, nor one that
// looks like another's.
func TestKeysAreBounded(t *testing.T) {
	g := grouping(t, "groups.key=[cluster,metadata.m]")
	long := strings.Repeat("x", 1<<20)
	deep, err := structpb.NewValue(map[string]any{"a": long})
	if err != nil {
		t.Fatal(err)
	}
	name := place(g, session.Peer{}, &core.Node{Cluster: long, Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"m": deep}}}, cache.Cluster)
	if len(name) > 1000 {
		t.Errorf("the name has %d bytes", len(name))
	}
	hash := strings.TrimPrefix(strings.SplitN(name, ";", 2)[0], "cluster=")
	if got := place(g, session.Peer{}, &core.Node{Cluster: hash}, cache.Cluster); strings.HasPrefix(got, "cluster="+hash) {
		t.Errorf("%q passes for a long cluster", got)
	}
}

// TestNodesThatAreOneClient: the whole node as a key leaves out what may change, and
// what is no matter of content.
func TestNodesThatAreOneClient(t *testing.T) {
	g := grouping(t, "groups.profile=sidecar")
	node := &core.Node{Id: "a", ClientFeatures: []string{"y", "xds.config.supports-resource-ttl", "x"}}
	p, end := g.Place(session.Peer{}, node, cache.Cluster, nil)
	if end != nil {
		t.Fatal(end)
	}
	same := place(g, session.Peer{}, &core.Node{Id: "a", ClientFeatures: []string{"x", "y", "envoy.lrs.supports_send_all_clusters"}}, cache.Cluster)
	if p.Name != same {
		t.Errorf("%s is not %s", p.Name, same)
	}
	if sent := g.Node(p, node); !slices.Contains(sent.GetClientFeatures(), "x") || sent.GetId() != "a" {
		t.Errorf("upstream is told %v", sent)
	}
	if node.GetClientFeatures()[0] != "y" {
		t.Error("the client's node was changed")
	}
}

// TestSecretsOfUsers: with rules, two users behind one Unix socket have their secrets apart, also with the same node.
func TestSecretsOfUsers(t *testing.T) {
	for _, set := range [][]string{nil, {"groups.profile=sidecar"}} {
		g := grouping(t, set...)
		c, err := config.Load("", set)
		if err != nil {
			t.Fatal(err)
		}
		rules, err := ParseRules("rules.yaml", `rules: [{identity: "unix:uid=1", node: {id: n}, read: [{types: [SDS], names: [a]}]}, {identity: "unix:uid=2", node: {id: n}, read: [{types: [SDS], names: [b]}]}]`, c)
		if err != nil {
			t.Fatal(err)
		}
		names := make(map[string]bool)
		for _, who := range []string{"unix:uid=1", "unix:uid=2"} {
			client := session.Peer{Local: true, Principal: who}
			node := &core.Node{Id: "n"}
			reads, _, end := rules.Reads(client, node, cache.Secret)
			if end != nil {
				t.Fatal(end)
			}
			p, end := g.Place(client, node, cache.Secret, reads)
			if end != nil {
				t.Fatal(end)
			}
			names[p.Name] = true
		}
		if len(names) != 2 {
			t.Errorf("%v: they share %v", set, names)
		}
	}
}
