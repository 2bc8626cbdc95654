package policy_test

import (
	"fmt"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/policy"
)

func configured(t *testing.T, set ...string) *config.Config {
	t.Helper()
	c, err := config.Load("", set)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func parse(t *testing.T, text string, set ...string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse("rules.yaml", []byte(text), configured(t, set...), nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// fleet is what docs/security.md begins with.
const fleet = `
rules:
  - identity: "spiffe://td/ns/{ns}/sa/{sa}"
    node: {metadata.NAMESPACE: "{ns}", metadata.SERVICE_ACCOUNT: "{sa}"}
    read:
      - {types: [LDS, CDS, RDS, EDS], names: ["*", "**"]}
      - {types: [SDS], names: ["kubernetes://{ns}/{sa}/**"]}
  - identity: "spiffe://td/ns/mesh/sa/gateway"
    read: [{types: [SDS], names: ["ROOTCA"], share: true}]
`

func nodeOf(t *testing.T, metadata map[string]any) *core.Node {
	t.Helper()
	s, err := structpb.NewStruct(metadata)
	if err != nil {
		t.Fatal(err)
	}
	return &core.Node{Id: "n", Metadata: s}
}

// TestGlobs: who may subscribe to a glob may read all that it covers, so that a rule has to say the glob itself.
func TestGlobs(t *testing.T) {
	p := parse(t, `
rules:
  - identity: "dns:{name}.example.com"
    read:
      - {types: [SDS], names: ["xdstp://cp/t/{name}", "xdstp://cp/t/{name}/*"]}
      - {types: [CDS], names: ["*", "**", "xdstp://cp/t/**"]}
`)
	for _, tt := range []struct {
		who, typ, name string
		want           bool
	}{
		{"dns:web.example.com", "SDS", "xdstp://cp/t/web/*", true},
		{"dns:web.example.com", "SDS", "xdstp://cp/t/web/a", true},
		{"dns:web.example.com", "SDS", "xdstp://cp/t/web/*?a=b", false},
		{"dns:web.example.com", "SDS", "xdstp://cp/t/web/*#a", false},
		{"dns:web.example.com", "SDS", "xdstp://cp/t/web/a/*", false},
		{"dns:web.example.com", "SDS", "xdstp://cp/t/db/*", false},
		{"dns:web.example.com", "SDS", "xdstp://cp/t/*", false},
		{"dns:web.example.com", "CDS", "xdstp://cp/t/web/*", false}, // neither is the glob
		{"dns:*.example.com", "SDS", "xdstp://cp/t/*", false},       // a certificate for all of them is none for their keys
		{"dns:*.example.com", "SDS", "xdstp://cp/t/*/*", false},
	} {
		url, _ := config.TypeURL(tt.typ)
		if v := p.Judge(tt.who, nil, cache.TypeURL(url), tt.name); v.Allowed != tt.want {
			t.Errorf("%s may read %s %s: %v", tt.who, tt.typ, tt.name, v.Allowed)
		}
	}
}

func TestRulesOfAFleet(t *testing.T) {
	p := parse(t, fleet)
	web := nodeOf(t, map[string]any{"NAMESPACE": "shop", "SERVICE_ACCOUNT": "web"})
	for _, tt := range []struct {
		who, node, typ, name string
		want                 bool
	}{
		{"spiffe://td/ns/shop/sa/web", "web", "SDS", "kubernetes://shop/web/key", true},
		{"spiffe://td/ns/shop/sa/web", "web", "SDS", "kubernetes://shop/web/a/b~c", true},
		{"spiffe://td/ns/shop/sa/web", "web", "SDS", "kubernetes://shop/web", false},
		{"spiffe://td/ns/shop/sa/web", "web", "SDS", "kubernetes://shop/web-admin/key", false},
		{"spiffe://td/ns/shop/sa/web", "web", "SDS", "kubernetes://shop/bob/key", false},
		{"spiffe://td/ns/shop/sa/web", "web", "SDS", "ROOTCA", false},
		{"spiffe://td/ns/shop/sa/web", "web", "SDS", "*", false},
		{"spiffe://td/ns/shop/sa/web", "web", "CDS", "*", true},
		{"spiffe://td/ns/shop/sa/web", "web", "CDS", "any/thing", true},
		{"spiffe://td/ns/shop/sa/web", "web", "RTDS", "a", false},
		{"spiffe://td/ns/shop/sa/bob", "web", "CDS", "*", false},      // another node than its own
		{"spiffe://other/ns/shop/sa/web", "web", "CDS", "*", false},   // another trust domain
		{"spiffe://td/ns/shop/sa/web/x", "web", "CDS", "*", false},    // a longer path
		{"spiffe://td/ns/shop/sa/", "web", "CDS", "*", false},         // an empty segment
		{"spiffe://td/ns/mesh/sa/gateway", "", "SDS", "ROOTCA", true}, // any node
		{"spiffe://td/ns/mesh/sa/gateway", "", "SDS", "kubernetes://mesh/gateway/key", false},
		{"anonymous", "web", "CDS", "*", false},
	} {
		node := web
		if tt.node == "" {
			node = &core.Node{Id: "n"}
		}
		url, _ := config.TypeURL(tt.typ)
		reads := p.Match(tt.who, node).Of(cache.TypeURL(url))
		if got := reads != nil && reads.Allows(tt.name); got != tt.want {
			t.Errorf("%s reads %s %q: %v", tt.who, tt.typ, tt.name, got)
		}
	}
	if r := p.Match("spiffe://td/ns/shop/sa/web", web).Of(cache.Secret); r.Shared() {
		t.Error("a secret is shared although its rule does not say so")
	}
	if r := p.Match("spiffe://td/ns/mesh/sa/gateway", web).Of(cache.Secret); !r.Shared() {
		t.Error("a secret is not shared although its rule says so")
	}
}

// TestPatterns: what a pattern matches, with the identity spiffe://td/{a}/{b}.
func TestPatterns(t *testing.T) {
	for _, tt := range []struct {
		pattern   string
		yes, noes []string
	}{
		{"x", []string{"x"}, []string{"", "xx", "X"}},
		{"{a}", []string{"A.*"}, []string{"A.x", "A", "a"}}, // literally, stars too
		{"p/*", []string{"p/", "p/x", "p/x.y"}, []string{"p", "p/x/y", "p/x~y"}},
		{"p/**", []string{"p/", "p/x/y~z"}, []string{"p", "q/x"}},
		{"**/x", []string{"/x", "a/b/x"}, []string{"x", "a/x/"}},
		{"*.x.*", []string{"a.x.b", ".x.", "a.x.x.b"}, []string{"a.x", "a/b.x.c"}},
		{"{a}/*/{b}/**", []string{"A.*/q/B/", "A.*/q/B/r/s"}, []string{"A.*/q/r/B/", "A/q/B/"}},
		{"**a**a**", []string{"aa", "xayaz"}, []string{"a", "xyz"}},
		{"xdstp://auth/T/x?a=1&b=2", []string{"xdstp://auth/T/x?a=1&b=2"}, []string{"xdstp://auth/T/x"}},
		{"xdstp://auth/T/{b}/*", []string{"xdstp://auth/T/B/x", "xdstp://auth/T/B/*"}, []string{"xdstp://auth/T/C/*", "xdstp://auth/T/B/x/*"}},
		{"xdstp://auth/T/**", []string{"xdstp://auth/T/B/x"}, []string{"xdstp://auth/T/B/*"}}, // a collection needs a rule with the same one
	} {
		p := parse(t, fmt.Sprintf("rules: [{identity: 'spiffe://td/{a}/{b}', read: [{types: [FOO/Bar], names: [%q]}]}]", tt.pattern))
		reads := p.Match("spiffe://td/A.*/B", nil).Of("FOO/Bar")
		for _, name := range tt.yes {
			if !reads.Allows(name) {
				t.Errorf("%s does not match %q", tt.pattern, name)
			}
		}
		for _, name := range tt.noes {
			if reads.Allows(name) {
				t.Errorf("%s matches %q", tt.pattern, name)
			}
		}
	}
}

func TestIdentities(t *testing.T) {
	for _, tt := range []struct {
		rule      string
		yes, noes []string
	}{
		{"anonymous", []string{"anonymous"}, []string{"", "anonymous/x", "dns:anonymous"}},
		{"unix:uid=7", []string{"unix:uid=7"}, []string{"unix:uid=77", "anonymous"}},
		{"subject:CN=a,O=b", []string{"subject:CN=a,O=b"}, []string{"subject:CN=a"}},
		{"dns:{host}.example.org", []string{"dns:a.example.org"}, []string{"dns:a.b.example.org", "dns:.example.org", "dns:a.example.com"}},
		{"dns:*.example.org", []string{"dns:a.example.org"}, []string{"dns:example.org"}},
		{"spiffe://td/**", []string{"spiffe://td/a", "spiffe://td/a/b"}, []string{"spiffe://td", "spiffe://td/", "spiffe://tdx/a", "https://td/a"}},
		{"spiffe://td/a-*/b", []string{"spiffe://td/a-1/b"}, []string{"spiffe://td/a-1/c", "spiffe://td/b-1/b"}},
		{"urn:x:y", []string{"urn:x:y"}, []string{"urn:x:z"}},
	} {
		p := parse(t, fmt.Sprintf("rules: [{identity: %q, read: [{types: [CDS], names: [a]}]}]", tt.rule))
		for _, who := range tt.yes {
			if len(p.Match(who, nil)) == 0 {
				t.Errorf("%s is not for %s", tt.rule, who)
			}
		}
		for _, who := range tt.noes {
			if len(p.Match(who, nil)) > 0 {
				t.Errorf("%s is for %s", tt.rule, who)
			}
		}
	}
}

// TestMistakes: each says where it is and what to do.
func TestMistakes(t *testing.T) {
	for _, tt := range []struct {
		text, want string
		set        []string
	}{
		{text: "", want: "no rules"},
		{text: "rules: []", want: "no rules"},
		{text: "rules: [{identity: a, read: []}]", want: "rules.yaml:1:"},
		{text: "rules: [{read: [{types: [CDS], names: [a]}]}]", want: `is missing`},
		{text: "rules:\n  - identity: 'spiffe://td/{a}'\n    read: [{types: [CDS], names: ['{b}']}]", want: `rules.yaml:3:35: rules[0].read[0].names[0]: "{b}" uses {b}`},
		{text: "rules: [{identity: 'spiffe://td/{a}', read: [{types: [CDS], names: ['{a}-*']}]}]", want: "star next to a capture"},
		{text: "rules: [{identity: 'spiffe://td/{a}', read: [{types: [CDS], names: ['x*{a}']}]}]", want: "star next to a capture"},
		{text: "rules: [{identity: 'spiffe://td/{a}/{b}', read: [{types: [CDS], names: ['{a}-{b}']}]}]", want: "two captures"},
		{text: "rules: [{identity: 'spiffe://td/{a}-x', read: [{types: [CDS], names: [a]}]}]", want: "whole segment"},
		{text: "rules: [{identity: 'spiffe://td/{a}/{a}', read: [{types: [CDS], names: [a]}]}]", want: "twice"},
		{text: "rules: [{identity: 'spiffe://**/x', read: [{types: [CDS], names: [a]}]}]", want: "in the middle"},
		{text: "rules: [{identity: 'unix:uid=*', read: [{types: [CDS], names: [a]}]}]", want: "written out"},
		{text: "rules: [{identity: anonymous, read: [{types: [SDS], names: ['**']}]}]", want: "not allowed for Secrets"},
		{text: "rules: [{identity: anonymous, read: [{types: [SDS], names: ['*']}]}]", want: "not allowed for Secrets"},
		{text: "rules: [{identity: anonymous, read: [{types: [CDX], names: [a]}]}]", want: "is no type"},
		{text: "rules: [{identity: anonymous, read: [{types: [CDS]}]}]", want: "allows no names"},
		{text: "rules: [{identity: anonymous, raed: []}]", want: "unknown field"},
		{text: "rules: [{identity: anonymous, node: {ip: x}, read: []}]", want: "unknown node field"},
		{text: "rules: [{identity: anonymous, node: {id: 7}, read: []}]", want: "quotes"},
		{text: "rules: [{identity: anonymous, read: [{types: [CDS], names: ['xdstp://a/T/x?b=1&a=2']}]}]", want: "not in order"},
		{text: "rules: [{identity: anonymous, read: [{types: [CDS], names: [a]}]}]", set: []string{"groups.key=[id]"}, want: "does not say what id may be"},
		{text: "rules: [{identity: anonymous, node: {id: a}, read: [{types: [CDS], names: [a]}]}]", set: []string{"groups.key=[id,metadata.a.b]"}, want: "metadata.a.b"},
		{text: "rules: [{identity: anonymous, read: [{types: [CDS], names: [a]}]}]", set: []string{"groups.profile=sidecar"}, want: "does not say what id may be"},
	} {
		_, err := policy.Parse("rules.yaml", []byte(tt.text), configured(t, tt.set...), nil)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s\n%v: %v, want %q", tt.text, tt.set, err, tt.want)
		}
	}
	bound := "rules: [{identity: anonymous, node: {metadata: {a: {b: x}}, id: '**'}, read: [{types: [CDS], names: [a]}]}]"
	if _, err := policy.Parse("rules.yaml", []byte(bound), configured(t, "groups.key=[id,metadata.a.b]"), nil); err != nil {
		t.Error(err)
	}
}

// TestAnyValueOfANode: "**" admits a node that says nothing there, too; any other pattern does not.
func TestAnyValueOfANode(t *testing.T) {
	for pattern, admits := range map[string]bool{"**": true, "*": false} {
		p := parse(t, fmt.Sprintf("rules: [{identity: anonymous, node: {cluster: %q}, read: [{types: [CDS], names: [a]}]}]", pattern))
		if got := len(p.Match("anonymous", &core.Node{Id: "a"})) > 0; got != admits {
			t.Errorf("%s admits a node without a cluster: %v", pattern, got)
		}
	}
}

// TestManyStars: a pattern costs no more than its length times the name's.
func TestManyStars(t *testing.T) {
	p := parse(t, "rules: [{identity: anonymous, read: [{types: [CDS], names: ['**a**a**a**ab']}]}]")
	if p.Match("anonymous", nil).Of(cache.Cluster).Allows(strings.Repeat("a", 100_000)) {
		t.Error("it matches")
	}
}

// TestManyRules: rules that are not for a client cost it little, since all streams are judged again when rules change.
func TestManyRules(t *testing.T) {
	var text strings.Builder
	text.WriteString("rules:\n")
	for i := range 1000 {
		fmt.Fprintf(&text, "  - {identity: 'spiffe://td/ns/team-%d/sa/{sa}', read: [{types: [CDS], names: ['{sa}/**']}]}\n", i)
	}
	p := parse(t, text.String())
	const few = 20
	if n := testing.AllocsPerRun(10, func() { p.Match("spiffe://td/ns/team-7/sa/web", nil) }); n > few {
		t.Errorf("%v allocations for each match", n)
	}
}

func BenchmarkAllows(b *testing.B) {
	c, _ := config.Load("", nil)
	p, err := policy.Parse("rules.yaml", []byte(fleet), c, nil)
	if err != nil {
		b.Fatal(err)
	}
	s, _ := structpb.NewStruct(map[string]any{"NAMESPACE": "shop", "SERVICE_ACCOUNT": "web"})
	node := &core.Node{Metadata: s}
	b.Run("match", func(b *testing.B) {
		for range b.N {
			p.Match("spiffe://td/ns/shop/sa/web", node).Of(cache.Secret)
		}
	})
	reads := p.Match("spiffe://td/ns/shop/sa/web", node).Of(cache.Secret)
	b.Run("name", func(b *testing.B) {
		for range b.N {
			reads.Allows("kubernetes://shop/web/key")
		}
	})
}

// TestCapturesWithBorders: a segment of an identity may have dots and tildes in it, and an account of Kubernetes
// may. None of them may make one identity's pattern match what another's names.
func TestCapturesWithBorders(t *testing.T) {
	p := parse(t, `
rules:
  - identity: "spiffe://td/ns/{ns}/sa/{sa}"
    node: {id: "{sa}.*"}
    read: [{types: [SDS], names: ["{sa}.*", "{ns}~{sa}~**", "own/{sa}/*"]}]
`)
	for _, tt := range []struct {
		ns, sa, id, name string
		want             bool
	}{
		{"shop", "web", "web.1", "web.key", true},
		{"shop", "web", "web.1", "own/web/key", true},
		{"shop", "web", "web.1", "shop~web~key", true},
		{"shop", "web.admin", "web.admin.1", "web.admin.key", false}, // it could not be told from that of web
		{"a~b", "c", "c.1", "a~b~c~key", false},
		{"a", "b~c", "c.1", "a~b~c~key", false},
		{"a~b", "c", "c.1", "own/c/key", true},
	} {
		grants := p.Match("spiffe://td/ns/"+tt.ns+"/sa/"+tt.sa, &core.Node{Id: tt.id})
		reads := grants.Of(cache.Secret)
		if got := reads != nil && reads.Allows(tt.name); got != tt.want {
			t.Errorf("%s/%s reads %q: %v", tt.ns, tt.sa, tt.name, got)
		}
	}
}
