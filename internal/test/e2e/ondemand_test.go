package e2e

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
)

// prompt is a control plane that has every name, and answers each at once.
type prompt struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
}

func (prompt) DeltaAggregatedResources(s discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	for nonce := 0; ; nonce++ {
		req, err := s.Recv()
		if err != nil {
			return nil
		}
		resp := &discovery.DeltaDiscoveryResponse{TypeUrl: req.GetTypeUrl(), Nonce: strconv.Itoa(nonce)}
		for _, name := range req.GetResourceNamesSubscribe() {
			body, err := anypb.New(endpoints(name, 1, "127.0.0.1:1"))
			if err != nil {
				return err
			}
			resp.Resources = append(resp.Resources, &discovery.Resource{Name: name, Version: "1", Resource: body})
		}
		if len(resp.GetResources()) == 0 {
			continue
		}
		if err := s.Send(resp); err != nil {
			return nil
		}
	}
}

// BenchmarkOnDemand is how long a client waits for a name that nobody has asked for
// before, while nothing else is being asked for: of the control plane itself, and
// through a relay (UP-6). The figure that counts is the median of each.
//
//	go test ./internal/test/e2e -run - -bench OnDemand -benchtime 300x
func BenchmarkOnDemand(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(server, prompt{})
	go func() { _ = server.Serve(l) }()
	b.Cleanup(server.Stop)
	r := startRelay(b, l.Addr().String())
	for _, way := range []struct{ name, target string }{{"upstream", l.Addr().String()}, {"relay", r.addr}} {
		b.Run(way.name, func(b *testing.B) { waitsOnDemand(b, way.target) })
	}
}

func waitsOnDemand(b *testing.B, target string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(dial(b, target)).DeltaAggregatedResources(ctx)
	if err != nil {
		b.Fatal(err)
	}
	ask := func(name string) time.Duration {
		begin := time.Now()
		req := &discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "bench"}, TypeUrl: string(cache.Endpoint), ResourceNamesSubscribe: []string{name}}
		if err := stream.Send(req); err != nil {
			b.Fatal(err)
		}
		resp, err := stream.Recv()
		if err != nil {
			b.Fatal(err)
		}
		took := time.Since(begin)
		if len(resp.GetResources()) != 1 || resp.GetResources()[0].GetName() != name {
			b.Fatalf("asked for %s, and was answered %v", name, resp)
		}
		if err := stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Endpoint), ResponseNonce: resp.GetNonce()}); err != nil {
			b.Fatal(err)
		}
		return took
	}
	ask("first") // of the type on the stream, which waits in any case
	var all []time.Duration
	for b.Loop() {
		wait(25 * time.Millisecond) // until all is quiet
		all = append(all, ask(fmt.Sprintf("%s-%d", target, len(all))))
	}
	slices.Sort(all)
	at := func(part float64) float64 { return all[int(part*float64(len(all)-1))].Seconds() * 1000 }
	b.ReportMetric(0, "ns/op") // with the pause it says nothing
	b.ReportMetric(at(0.5), "ms/median")
	b.ReportMetric(at(0.99), "ms/p99")
}
