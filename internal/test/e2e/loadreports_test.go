package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	lrs "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

const goesThrough = "passthrough=[{service: " + config.LoadReporting + ", max_calls: %d}]"

// 100 clients of grpc-go's own report their load through the relay, which is their xDS server (lrs_server.self, gRFC A27).
// What the control plane has of them is what was sent, in a call of each (LRS-2), or added up in one (LRS-4).
func TestGRPCClientsReportLoad(t *testing.T) {
	for _, how := range []string{"through", "added up"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			grpcClientsReportLoad(t, how == "added up")
		})
	}
}

func grpcClientsReportLoad(t *testing.T, summed bool) {
	const clients, calls = 100, 20
	loads := peer.NewLoads(200*time.Millisecond, "shop-cluster")
	w := newLinear(t)
	w.service("shop", startBackend(t, "blue"))
	reporting := edsCluster("shop-cluster", 2)
	reporting.LrsServer = &core.ConfigSource{ConfigSourceSpecifier: &core.ConfigSource_Self{Self: &core.SelfConfigSource{}}}
	w.Set(cache.Cluster, "shop-cluster", reporting)
	cp := startControlPlane(t, w.Mux(), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error { return loads.Serve(s) }))
	set, theirs := fmt.Sprintf(goesThrough, clients), clients
	if summed {
		set, theirs = fmt.Sprintf("passthrough=[{service: %s, max_calls: %d, aggregate: true}]", config.LoadReporting, clients), 1
	}
	r := startRelay(t, cp.addr, set, "upstream.node={id: relay}")

	var work sync.WaitGroup
	for i := range clients {
		a := startApp(t, r.addr, fmt.Sprintf("app-%d", i), "shop")
		work.Go(func() {
			for range calls {
				if err := a.Reaches("blue"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	whole := func() error { return is("requests reported", loads.Issued("shop-cluster"), clients*calls) }
	eventually(t, patience, whole)
	if err := first(is("nodes that report", loads.Nodes(), theirs), is("calls there", loads.Open(), theirs), is("calls here", r.Calls()[config.LoadReporting], clients),
		is("clients of discovery", r.Count(), clients), is("streams upstream", cp.Most(), 1)); err != nil {
		t.Error(err)
	}
	reports := loads.Reports()
	eventually(t, patience, func() error { // two more of each, in which nothing may be said again
		if more := loads.Reports() - reports; more < 2*theirs {
			return fmt.Errorf("%d more reports", more)
		}
		return nil
	})
	if err := whole(); err != nil {
		t.Error(err)
	}
}

// 10,000 calls with load reports (1,000 in the short form) take no seat of discovery's, which has few, and each of their
// reports arrives (LRS-3), also in the one call of their group (LRS-4).
func TestLoadReportsTakeNoSeat(t *testing.T) {
	for _, how := range []string{"through", "added up"} {
		t.Run(how, func(t *testing.T) { loadReportsTakeNoSeat(t, how == "added up") })
	}
}

func loadReportsTakeNoSeat(t *testing.T, summed bool) {
	calls, every := 1000, time.Hour
	if summed {
		every = time.Second
	}
	if long() {
		calls = 10_000
	}
	const streams, eachConnection = 4, 100
	loads := peer.NewLoads(every, "a")
	w := newLinear(t)
	w.Set(cache.Cluster, "a", staticCluster("a", 1))
	cp := startControlPlane(t, w.Mux(), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error { return loads.Serve(s) }))
	set, theirs := fmt.Sprintf(goesThrough, calls), calls
	if summed {
		set, theirs = fmt.Sprintf("passthrough=[{service: %s, max_calls: %d, aggregate: true}]", config.LoadReporting, calls), 1
	}
	r := startRelay(t, cp.addr, set, "upstream.node={id: relay}", "upstream.max_connections=128", fmt.Sprintf("downstream.max_streams=%d", streams))

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begins := time.Now()
	var open []lrs.LoadReportingService_StreamLoadStatsClient
	for i := range calls / eachConnection {
		conn, err := grpc.NewClient(r.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		for n := range eachConnection {
			s, err := lrs.NewLoadReportingServiceClient(conn).StreamLoadStats(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Send(&lrs.LoadStatsRequest{Node: &core.Node{Id: fmt.Sprint(i, "-", n)}}); err != nil {
				t.Fatal(err)
			}
			open = append(open, s)
		}
	}
	for _, s := range open {
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d calls are open after %v", calls, time.Since(begins))

	var clients []*deltaClient
	for i := range streams {
		c := openDelta(t, r.addr, fmt.Sprintf("client-%d", i))
		c.Subscribe(cache.Cluster, "a")
		clients = append(clients, c)
	}
	for _, c := range clients {
		eventually(t, patience, func() error { return c.AtLeast(cache.Cluster, "a", 1) })
	}
	for _, s := range open {
		report := &lrs.LoadStatsRequest{ClusterStats: []*endpoint.ClusterStats{{ClusterName: "a", UpstreamLocalityStats: []*endpoint.UpstreamLocalityStats{{TotalIssuedRequests: 3}}}}}
		if err := s.Send(report); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, patience, func() error { return is("requests reported", loads.Issued("a"), uint64(3*calls)) })
	w.Set(cache.Cluster, "a", staticCluster("a", 2))
	for _, c := range clients {
		eventually(t, patience, func() error { return c.AtLeast(cache.Cluster, "a", 2) })
	}
	if err := first(is("calls", r.Calls()[config.LoadReporting], calls), is("streams of discovery", r.Count(), streams), is("nodes that report", loads.Nodes(), theirs)); err != nil {
		t.Error(err)
	}
}
