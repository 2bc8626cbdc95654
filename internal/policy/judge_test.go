package policy_test

import (
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/policy"
)

func node(t *testing.T, fields string) *core.Node {
	t.Helper()
	n := &core.Node{}
	for _, pair := range strings.Fields(fields) {
		name, value, _ := strings.Cut(pair, "=")
		if err := policy.SetField(n, name, value); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// TestJudge: a verdict says what Match does, and why.
func TestJudge(t *testing.T) {
	p := parse(t, fleet+`
  - {identity: anonymous, read: []}
  - {identity: "unix:uid=7", node: {id: "a-*", cluster: "**"}, read: [{types: [CDS, FOO/Bar], names: ["*", a, "b/**"]}]}
`)
	const web, gateway = "spiffe://td/ns/shop/sa/web", "spiffe://td/ns/mesh/sa/gateway"
	const own = "metadata.NAMESPACE=shop metadata.SERVICE_ACCOUNT=web"
	for _, tt := range []struct {
		who, node, typ, name string
		want                 string // lines
	}{
		{web, own, "CDS", "*", `yes rules.yaml:3 "*"`},
		{web, own, "CDS", "a", `yes rules.yaml:6 "**"`},
		{web, own, "SDS", "kubernetes://shop/web/key", `yes rules.yaml:7 "kubernetes://{ns}/{sa}/**" own`},
		{gateway, "", "SDS", "ROOTCA", `yes rules.yaml:8 "ROOTCA" shared`},
		{"spiffe://td/x", own, "CDS", "a", `no rule names "spiffe://td/x"`},
		{web, "metadata.NAMESPACE=mesh", "CDS", "a", `rules name "spiffe://td/ns/shop/sa/web", but none of them admits this node
rules.yaml:3: does not admit the node: metadata.NAMESPACE must be "{ns}", here "shop", and is "mesh"
rules.yaml:3: does not admit the node: metadata.SERVICE_ACCOUNT must be "{sa}", here "web", and the node does not say it as text`},
		{web, own, "RTDS", "a", "no rule that the client has reads RTDS\nrules.yaml:3: reads CDS, EDS, LDS, RDS, SDS"},
		{"anonymous", "", "CDS", "a", "no rule that the client has reads CDS\nrules.yaml:11: reads nothing"},
		{web, own, "SDS", "kubernetes://shop/bob/key", `the client's rules for SDS do not allow "kubernetes://shop/bob/key"
rules.yaml:7: allows "kubernetes://{ns}/{sa}/**", here "kubernetes://shop/web/**"`},
		{"unix:uid=7", "id=a-1 cluster=c", "FOO/Bar", "c", `the client's rules for FOO/Bar do not allow "c"
rules.yaml:12: allows "*", the wildcard
rules.yaml:12: allows "a"
rules.yaml:12: allows "b/**"`},
		{"unix:uid=7", "cluster=c", "CDS", "a", `rules name "unix:uid=7", but none of them admits this node
rules.yaml:12: does not admit the node: id must be "a-*", and the node does not say it as text`},
	} {
		url, _ := config.TypeURL(tt.typ)
		n := node(t, tt.node)
		v := p.Judge(tt.who, n, cache.TypeURL(url), tt.name)
		got := strings.Join(v.Because, "\n")
		if v.Allowed {
			got = `yes ` + v.Place + ` "` + v.Pattern + `"`
			if v.Secret {
				got += map[bool]string{true: " shared", false: " own"}[v.Shared]
			}
		}
		if got != tt.want {
			t.Errorf("%s %s %s:\n%s\nwant\n%s", tt.who, tt.typ, tt.name, got, tt.want)
		}
		reads := p.Match(tt.who, n).Of(cache.TypeURL(url))
		if allows := reads != nil && reads.Allows(tt.name); allows != v.Allowed {
			t.Errorf("%s %s %s: the verdict is %v, and the door says %v", tt.who, tt.typ, tt.name, v.Allowed, allows)
		}
	}
}

// TestSetField: what is set is what rules see.
func TestSetField(t *testing.T) {
	n := &core.Node{}
	for _, name := range []string{"id", "cluster", "locality.region", "locality.zone", "locality.sub_zone", "metadata.a", "metadata.b.c", "metadata.b.d"} {
		if err := policy.SetField(n, name, "is "+name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"id", "cluster", "locality.region", "locality.zone", "locality.sub_zone", "metadata.a", "metadata.b.c", "metadata.b.d"} {
		if value, _ := policy.Field(n, name); value != "is "+name {
			t.Errorf("%s is %q", name, value)
		}
	}
	for _, name := range []string{"", "ip", "metadata", "metadata.", "metadata.a", "metadata.a.b", "metadata.b", "metadata..c"} {
		if policy.SetField(n, name, "x") == nil {
			t.Errorf("%q can be set", name)
		}
	}
}

func TestCheckIdentity(t *testing.T) {
	for who, ok := range map[string]bool{"spiffe://td/a": true, "urn:a": true, "dns:a": true, "subject:CN=a": true, "unix:uid=1": true, "anonymous": true, "": false, "web": false, "unix:gid=1": false} {
		if err := policy.CheckIdentity(who); (err == nil) != ok {
			t.Errorf("%q: %v", who, err)
		}
	}
}
