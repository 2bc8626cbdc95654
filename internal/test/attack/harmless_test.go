//go:build linux

package attack

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// Those who want no harm, and need much: no limit may meet them as it is by default (VALID-8). Envoys with 20,000
// clusters are in internal/test/e2e/envoy.

// reader is a Delta stream of theirs, and what it was told.
type reader struct {
	t      *testing.T
	stream deltaStream
	told   map[string]bool // type and name of what came or is gone
}

func newReader(t *testing.T, addr string) *reader {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(func() {
		cancel()
		conn.Close()
	})
	s, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	return &reader{t, s, make(map[string]bool)}
}

func (r *reader) send(req *discovery.DeltaDiscoveryRequest) {
	r.t.Helper()
	if err := r.stream.Send(req); err != nil {
		_, err = r.stream.Recv()
		r.t.Fatal(err)
	}
}

// until reads until it was told of so many names.
func (r *reader) until(n int) {
	r.t.Helper()
	for len(r.told) < n {
		resp, err := r.stream.Recv()
		if err != nil {
			r.t.Fatalf("told of %d names of %d: %v", len(r.told), n, err)
		}
		for _, e := range resp.GetResourceErrors() {
			r.t.Fatalf("%s is refused: %v", e.GetResourceName().GetName(), e.GetErrorDetail())
		}
		for _, name := range resp.GetRemovedResources() {
			r.told[resp.GetTypeUrl()+" "+name] = true
		}
		for _, one := range resp.GetResources() {
			r.told[resp.GetTypeUrl()+" "+one.GetName()] = true
		}
		r.send(&discovery.DeltaDiscoveryRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce()})
	}
}

// TestARelayBelow: another relay, which nobody has listed as one, asks for 100,000 names (short: 10,000), and again when the relay
// above it comes back.
func TestARelayBelow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, &attack{Remote: true})
	lower := peer.NewRelay(t, peer.Address(t), peer.Address(t), nil, append(peer.QuickBackoff[:2:2], "upstream.address="+w.target.Addr, "upstream.insecure=true")...)
	lower.Args = append(lower.Args, "--set", "downstream.listen=["+lower.Addr+"]", "--set", "admin.listen="+lower.Admin)
	lower.Start()
	r := newReader(t, lower.Addr)
	all, part := 100_000, 20_000
	if !long() {
		all /= 10
	}
	list := names("outbound|8080||service.namespace.svc.cluster.local", all-1, 60)
	r.send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "big"}, TypeUrl: string(cache.Endpoint), ResourceNamesSubscribe: []string{beat}})
	for i := 0; i < len(list); i += part {
		r.send(subscribe(cache.Endpoint, list[i:min(i+part, len(list))]...))
	}
	r.until(all)
	w.relay.Kill()
	w.relay.Start()
	clear(r.told)
	r.until(1) // the beat goes on, with all these names on the stream
	if refused := w.relay.Output.Lines("client stream ended", "RESOURCE_EXHAUSTED"); len(refused) > 0 {
		t.Errorf("refused: %s", refused)
	}
}

// TestIstioAgent: the requests of istio-agent, which speaks for an Envoy: a node with much metadata, the Envoy's types by
// wildcard and name, and types of its own, of which no Envoy knows. Secrets come from the agent itself.
func TestIstioAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, &attack{Remote: true})
	r := newReader(t, w.target.Addr)
	labels := make(map[string]any)
	for i := range 300 {
		labels[fmt.Sprintf("label-%d.example.org/name", i)] = strings.Repeat("v", 60)
	}
	metadata, err := structpb.NewStruct(map[string]any{
		"CLUSTER_ID": "Kubernetes", "NAMESPACE": "default", "LABELS": labels, "INSTANCE_IPS": "10.1.2.3,fe80::1",
		"PROXY_CONFIG": map[string]any{"binaryPath": "/usr/local/bin/envoy", "proxyMetadata": labels, "concurrency": 2},
	})
	if err != nil {
		t.Fatal(err)
	}
	node := &core.Node{Id: "sidecar~10.1.2.3~web-0.default~default.svc.cluster.local", Cluster: "web.default", Metadata: metadata}
	r.send(&discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: string(cache.Cluster)})
	r.send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Listener)})
	for _, own := range []cache.TypeURL{"type.googleapis.com/istio.networking.nds.v1.NameTable", "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig"} {
		r.send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(own)})
	}
	r.send(subscribe(cache.Endpoint, append(names("outbound|80||s", 2000, 60), beat)...))
	r.send(subscribe(cache.Route, names("80-", 50, 20)...))
	r.until(2000 + 1) // of routes it is told only what there is
	for range 20 {
		clear(r.told)
		r.until(1)
	}
}
