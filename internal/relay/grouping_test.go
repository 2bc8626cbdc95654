package relay

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
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
func place(g Grouping, client downstream.Peer, node *core.Node, t cache.TypeURL) string {
	p, end := g.Place(client, node, t)
	if end != nil {
		return string(end.Reason)
	}
	return p.Name
}

// TestIdentityIsPartOfTheKey: what a certificate proves can tell groups apart, and
// nothing that a client says of itself can take its place (NODE-4, H-23).
func TestIdentityIsPartOfTheKey(t *testing.T) {
	g := grouping(t, append(mutualTLS, "groups.key=[identity,cluster]")...)
	blue, red := downstream.Peer{Identity: "spiffe://x/blue"}, downstream.Peer{Identity: "spiffe://x/red"}
	node := &core.Node{Id: "a", Cluster: `east";identity="spiffe://x/red`}
	for _, tt := range []struct {
		client downstream.Peer
		typ    cache.TypeURL
		want   string
	}{
		{blue, cache.Cluster, `identity="spiffe://x/blue";cluster="east\";identity=\"spiffe://x/red";`},
		{blue, cache.Secret, `identity="spiffe://x/blue";cluster="east\";identity=\"spiffe://x/red";`}, // the client's own already
		{red, cache.Cluster, `identity="spiffe://x/red";cluster="east\";identity=\"spiffe://x/red";`},
		{downstream.Peer{Local: true}, cache.Cluster, "forbidden"},
		{downstream.Peer{}, cache.Secret, "forbidden"},
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
	local := downstream.Peer{Local: true}
	blue := downstream.Peer{Identity: "blue", Local: true}
	for _, set := range []string{"groups.key=[]", "groups.key=[id]", "groups.profile=sidecar", `groups.types=[{"type_url":"SDS","key":["id"]}]`} {
		t.Run(set, func(t *testing.T) {
			g := grouping(t, set)
			names := map[string]string{}
			for _, client := range []downstream.Peer{local, blue, {Identity: "red"}} {
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
			if got := place(g, downstream.Peer{}, one, cache.Secret); got != string(downstream.Forbidden) {
				t.Errorf("a stranger's secrets: %s", got)
			}
		})
	}
	if got := place(grouping(t, "groups.share_secrets=true"), downstream.Peer{}, one, cache.Secret); got != "" {
		t.Errorf("shared secrets are in %q", got)
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
	name := place(g, downstream.Peer{}, &core.Node{Cluster: long, Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"m": deep}}}, cache.Cluster)
	if len(name) > 1000 {
		t.Errorf("the name has %d bytes", len(name))
	}
	hash := strings.TrimPrefix(strings.SplitN(name, ";", 2)[0], "cluster=")
	if got := place(g, downstream.Peer{}, &core.Node{Cluster: hash}, cache.Cluster); strings.HasPrefix(got, "cluster="+hash) {
		t.Errorf("%q passes for a long cluster", got)
	}
}

// TestNodesThatAreOneClient: the whole node as a key leaves out what may change, and
// what is no matter of content.
func TestNodesThatAreOneClient(t *testing.T) {
	g := grouping(t, "groups.profile=sidecar")
	node := &core.Node{Id: "a", ClientFeatures: []string{"y", "xds.config.supports-resource-ttl", "x"}}
	p, end := g.Place(downstream.Peer{}, node, cache.Cluster)
	if end != nil {
		t.Fatal(end)
	}
	same := place(g, downstream.Peer{}, &core.Node{Id: "a", ClientFeatures: []string{"x", "y", "envoy.lrs.supports_send_all_clusters"}}, cache.Cluster)
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

func TestWays(t *testing.T) {
	w := make(Ways)
	tell := func(want ...string) {
		t.Helper()
		if got := w.Longest(); !slices.Equal(got, want) {
			t.Errorf("the longest of %v is %v, want %v", w, got, want)
		}
	}
	tell()
	w.Join(nil)
	w.Join([]string{"b"})
	w.Join([]string{"a"})
	w.Join([]string{"b"})
	tell("a")
	w.Join([]string{"z", "y"})
	tell("z", "y")
	w.Leave([]string{"z", "y"})
	w.Leave([]string{"a"})
	w.Leave([]string{"b"})
	tell("b")
	w.Leave(nil)
	w.Leave([]string{"b"})
	tell()
	if len(w) > 0 {
		t.Errorf("%v is left", fmt.Sprint(w))
	}
}
