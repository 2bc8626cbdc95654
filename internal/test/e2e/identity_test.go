package e2e

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/config"
)

const (
	alice = "spiffe://example.org/alice"
	bob   = "spiffe://example.org/bob"
)

// claims is a node that says an identity of itself.
func claims(id, identity string) grpc.DialOption {
	return thisNodeInEach(&core.Node{Id: id, Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
		config.ClientIdentity: structpb.NewStringValue(identity), "NAMESPACE": structpb.NewStringValue("default"),
	}}})
}

// sightedIdentities are the identities that the control plane sees, with how many streams, of those on which somebody asks
// for a type.
func (cp *controlPlane) sightedIdentities(u cache.TypeURL) map[string]int {
	seen := make(map[string]int)
	cp.see(func(streams []*upstreamStream) {
		for _, s := range streams {
			if s.requests[u] > 0 {
				seen[s.node.GetMetadata().GetFields()[config.ClientIdentity].GetStringValue()]++
			}
		}
	})
	return seen
}

// The control plane sees the identity that the certificate proves, in each node mode, for groups that are one
// identity's; what a client's node says never goes up (NODE-6).
func TestIdentityGoesUp(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ours")
	ca.issue("relay", "")
	w := newLinear(t, cache.Secret, cache.Cluster)
	w.Set(cache.Secret, "s", raw([]byte{0x0a, 0x01, 's'}))
	w.Set(cache.Cluster, "c", raw([]byte{0x0a, 0x01, 'c'}))
	both, none := map[string]int{alice: 1, bob: 1}, map[string]int{"": 2}
	for name, tt := range map[string]struct {
		sets              []string
		secrets, clusters map[string]int
	}{
		"template":          {[]string{"groups.send_identity=true", "groups.key=[identity]"}, both, both},
		"static":            {[]string{"groups.send_identity=true", "groups.key=[identity]", "upstream.node_mode=static"}, both, both},
		"passthrough":       {[]string{"groups.send_identity=true", "groups.key=[identity,node]", "upstream.node_mode=passthrough"}, both, both},
		"metadata":          {[]string{"groups.send_identity=true", "groups.key=[identity,metadata.NAMESPACE]"}, both, both},
		"secrets alone":     {[]string{"groups.send_identity=true", "groups.secrets=identity"}, both, map[string]int{"": 1}},
		"secrets by node":   {[]string{"groups.send_identity=true", "groups.profile=sidecar"}, both, map[string]int{"": 1}},
		"off":               {[]string{"groups.key=[identity]"}, none, none},
		"off, passthrough":  {[]string{"groups.key=[identity,node]", "upstream.node_mode=passthrough"}, none, none},
		"no identity's own": {[]string{"groups.send_identity=true", "groups.secrets=shared", `groups.types=[{"type_url":"EDS","key":["identity"]}]`}, map[string]int{"": 1}, map[string]int{"": 1}},
		"a relay is listed": {[]string{"groups.send_identity=true", "groups.key=[identity]", `downstream.relays=["spiffe://example.org/relay"]`}, both, both},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cp := startControlPlane(t, w.Mux())
			r := startRelay(t, cp.addr, append(tt.sets, "downstream.tls.cert="+ca.path("relay.pem"), "downstream.tls.key="+ca.path("relay.key"), "downstream.tls.client_ca="+ca.path("ca.pem"))...)
			for i, identity := range []string{alice, bob} {
				c := openDelta(t, r.addr, identity, ca.as(ca.issue(fmt.Sprint(name, i), identity)), claims("node", "spiffe://example.org/mallory"))
				c.Subscribe(cache.Secret, "s")
				c.Subscribe(cache.Cluster, "c")
				eventually(t, patience, func() error { return first(c.Has(cache.Secret, "s"), c.Has(cache.Cluster, "c")) })
			}
			if got := cp.sightedIdentities(cache.Secret); !maps.Equal(got, tt.secrets) {
				t.Errorf("the control plane sees %v ask for secrets, want %v", got, tt.secrets)
			}
			if got := cp.sightedIdentities(cache.Cluster); !maps.Equal(got, tt.clusters) {
				t.Errorf("the control plane sees %v ask for clusters, want %v", got, tt.clusters)
			}
		})
	}
}

// A relay that another one lists speaks for its clients: the control plane sees them, each on a stream of its
// own, and not the relay between (NODE-6).
func TestIdentityGoesUpThroughRelays(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ours")
	ca.issue("far", "spiffe://example.org/far")
	ca.issue("near", "spiffe://example.org/near")
	w := newLinear(t, cache.Secret)
	w.Set(cache.Secret, "s", raw([]byte{0x0a, 0x01, 's'}))
	cp := startControlPlane(t, w.Mux())
	serve := func(name, upstream string, sets ...string) *relayed {
		return startRelay(t, upstream, slices.Concat([]string{
			"instance=" + name, "groups.send_identity=true", "groups.secrets=identity",
			"downstream.tls.cert=" + ca.path(name+".pem"), "downstream.tls.key=" + ca.path(name+".key"), "downstream.tls.client_ca=" + ca.path("ca.pem"),
		}, sets)...)
	}
	far := serve("far", cp.addr, `downstream.relays=["spiffe://example.org/near"]`)
	near := serve("near", far.addr, "upstream.tls.ca="+ca.path("ca.pem"), "upstream.tls.cert="+ca.path("near.pem"), "upstream.tls.key="+ca.path("near.key"))
	for i, identity := range []string{alice, bob} {
		c := openDelta(t, near.addr, identity, ca.as(ca.issue(fmt.Sprint("c", i), identity)))
		c.Subscribe(cache.Secret, "s")
		eventually(t, patience, func() error { return c.Has(cache.Secret, "s") })
	}
	if got := cp.sightedIdentities(cache.Secret); !maps.Equal(got, map[string]int{alice: 1, bob: 1}) {
		t.Errorf("the control plane sees %v ask for secrets", got)
	}
}
