package consul

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// probe is a stream on which a test says what it likes, as a node.
type probe struct {
	*peer.Talk
	t    testing.TB
	node string
}

func dial(t testing.TB, target string, creds credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	conn, err := grpc.NewClient("passthrough:///"+target, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// startProbe opens a stream as a node, with a token unless that is empty.
func startProbe(t testing.TB, target, node, token string) *probe {
	t.Helper()
	ctx := context.Background()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "x-consul-token", token)
	}
	p := &probe{t: t, node: node, Talk: peer.StartTalk(ctx, t, dial(t, target, nil))}
	p.Short = shortName
	return p
}

// silence is how long nothing is said if nothing is to come. Consul gathers changes for
// up to 200 ms.
const silence = 2 * time.Second

// Says sends requests and returns what is answered until there is silence.
func (p *probe) Says(requests ...*discovery.DeltaDiscoveryRequest) (answers []string) {
	p.t.Helper()
	for _, r := range requests {
		r.Node = &core.Node{Id: p.node}
		p.Send(r)
	}
	return p.Listens(silence)
}

// Listens returns what is said until there was silence for so long.
func (p *probe) Listens(silence time.Duration) (answers []string) {
	for {
		words, err := p.Hear(silence)
		if err != nil {
			return append(answers, "end: "+err.Error())
		}
		if words == "" {
			return answers
		}
		answers = append(answers, words)
	}
}

// Hears complains unless exactly this is answered.
func (p *probe) Hears(claim string, want []string, requests ...*discovery.DeltaDiscoveryRequest) {
	p.t.Helper()
	got := p.Says(requests...)
	p.t.Logf("%s: %q", claim, got)
	if !slices.Equal(got, want) {
		p.t.Errorf("%s: it answers %q, not %q", claim, got, want)
	}
}

var nothing []string

func subscribe(kind string, names ...string) *discovery.DeltaDiscoveryRequest {
	return &discovery.DeltaDiscoveryRequest{TypeUrl: typeURLs[kind], ResourceNamesSubscribe: names}
}

func unsubscribe(kind string, names ...string) *discovery.DeltaDiscoveryRequest {
	return &discovery.DeltaDiscoveryRequest{TypeUrl: typeURLs[kind], ResourceNamesUnsubscribe: names}
}

// resume is a first request that brings versions.
func resume(kind string, versions map[string]string, names ...string) *discovery.DeltaDiscoveryRequest {
	r := subscribe(kind, names...)
	r.InitialResourceVersions = maps.Clone(versions)
	return r
}

// ack acknowledges the last response of a type.
func (p *probe) ack(kind string) *discovery.DeltaDiscoveryRequest {
	return &discovery.DeltaDiscoveryRequest{TypeUrl: typeURLs[kind], ResponseNonce: p.Nonces[kind]}
}

func (p *probe) nack(kind string) *discovery.DeltaDiscoveryRequest {
	r := p.ack(kind)
	r.ErrorDetail = &statuspb.Status{Code: 3, Message: "no"}
	return r
}

// full is the name of a resource whose short name this is.
func (p *probe) full(kind, name string) string {
	p.t.Helper()
	for full := range p.Versions[kind] {
		if shortName(full) == name {
			return full
		}
	}
	p.t.Fatalf("no %s %s in %v", kind, name, p.Versions[kind])
	return ""
}
