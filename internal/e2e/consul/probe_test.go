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
)

// probe is a Delta stream on which a test says what it likes.
type probe struct {
	t        testing.TB
	stream   discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	node     string
	heard    chan *discovery.DeltaDiscoveryResponse
	end      error             // why heard was closed
	nonces   map[string]string // of the last response of each type
	versions map[string]map[string]string
	got      []*discovery.DeltaDiscoveryResponse // all of them
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
	ctx, cancel := context.WithCancel(context.Background())
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "x-consul-token", token)
	}
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(dial(t, target, nil)).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	p := &probe{
		t: t, stream: stream, node: node, heard: make(chan *discovery.DeltaDiscoveryResponse, 100),
		nonces: make(map[string]string), versions: make(map[string]map[string]string),
	}
	t.Cleanup(func() {
		cancel()
		for range p.heard { // until the receiver is gone
		}
	})
	go func() {
		defer close(p.heard)
		for {
			r, err := stream.Recv()
			if err != nil {
				p.end = err
				return
			}
			p.heard <- r
		}
	}()
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
		_ = p.stream.Send(r) // what is wrong is said to the receiver
	}
	return p.Listens(silence)
}

// Listens returns what is said until there was silence for so long.
func (p *probe) Listens(silence time.Duration) (answers []string) {
	quiet := time.NewTimer(silence)
	defer quiet.Stop()
	for {
		select {
		case r, ok := <-p.heard:
			if !ok {
				return append(answers, "end: "+p.end.Error())
			}
			p.got = append(p.got, r)
			name := short(r.GetTypeUrl())
			p.nonces[name] = r.GetNonce()
			if p.versions[name] == nil {
				p.versions[name] = make(map[string]string)
			}
			for _, res := range r.GetResources() {
				p.versions[name][res.GetName()] = res.GetVersion()
			}
			answers = append(answers, spell(r))
			quiet.Reset(silence)
		case <-quiet.C:
			return answers
		}
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
	return &discovery.DeltaDiscoveryRequest{TypeUrl: typeURLs[kind], ResponseNonce: p.nonces[kind]}
}

func (p *probe) nack(kind string) *discovery.DeltaDiscoveryRequest {
	r := p.ack(kind)
	r.ErrorDetail = &statuspb.Status{Code: 3, Message: "no"}
	return r
}

// full is the name of a resource whose short name this is.
func (p *probe) full(kind, name string) string {
	p.t.Helper()
	for full := range p.versions[kind] {
		if shortName(full) == name {
			return full
		}
	}
	p.t.Fatalf("no %s %s in %v", kind, name, p.versions[kind])
	return ""
}
