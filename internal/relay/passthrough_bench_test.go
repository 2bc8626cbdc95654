package relay

import (
	"fmt"
	"net"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	lrs "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xds-relay/xds-relay/internal/config"
)

// BenchmarkPassThrough is what a load report costs on its way to a control plane, client and control plane included, over
// loopback: the difference between relayed, or summed, and direct is the relay's. cpu-ns/op is of the whole process. The
// clock stops when all load has arrived, for sums with the next report.
func BenchmarkPassThrough(b *testing.B) {
	for _, clusters := range []int{1, 100} {
		for _, how := range []string{"direct", "relayed", "summed"} {
			b.Run(fmt.Sprintf("%s/%dclusters", how, clusters), func(b *testing.B) { passLoad(b, how, clusters) })
		}
	}
}

func passLoad(b *testing.B, how string, clusters int) {
	report := new(lrs.LoadStatsRequest)
	for n := range clusters {
		report.ClusterStats = append(report.ClusterStats, load(fmt.Sprintf("outbound|8080||service-%03d.shop.svc.cluster.local", n), 1, 2).GetClusterStats()...)
	}
	arrived := make(chan error, 1)
	plane := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		m := new(lrs.LoadStatsRequest)
		for left, first := b.N*clusters, true; left > 0; first = false {
			if err := s.RecvMsg(m); err != nil {
				arrived <- err
				return err
			}
			if first {
				if err := s.SendMsg(&lrs.LoadStatsResponse{SendAllClusters: true, LoadReportingInterval: durationpb.New(minInterval)}); err != nil {
					return err
				}
			}
			for _, c := range m.GetClusterStats() {
				left -= int(c.GetUpstreamLocalityStats()[0].GetTotalIssuedRequests())
			}
		}
		arrived <- nil
		<-s.Context().Done()
		return nil
	}))
	l := listen(b)
	go func() { _ = plane.Serve(l) }() // it ends with Stop
	defer plane.Stop()
	to := l.Addr().String()
	if how != "direct" {
		c, err := config.Load("", []string{"upstream.address=" + to, fmt.Sprintf("passthrough=[{service: %s, aggregate: %v}]", config.LoadReporting, how == "summed")})
		if err != nil {
			b.Fatal(err)
		}
		r, err := New(c, Options{})
		if err != nil {
			b.Fatal(err)
		}
		defer r.Close(0)
		front := listen(b)
		r.Serve(front)
		to = front.Addr().String()
	}
	conn, err := grpc.NewClient(to, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	s, err := lrs.NewLoadReportingServiceClient(conn).StreamLoadStats(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Send(&lrs.LoadStatsRequest{Node: &core.Node{Id: "n", ClientFeatures: []string{sumsAll}}}); err != nil {
		b.Fatal(err)
	}
	if _, err := s.Recv(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	from := cpuTime(b)
	for range b.N {
		if err := s.Send(report); err != nil {
			b.Fatal(err)
		}
	}
	if err := <-arrived; err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	b.ReportMetric(float64(cpuTime(b)-from)/float64(b.N), "cpu-ns/op")
}

// cpuTime is what the process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	sample := []metrics.Sample{{Name: "/cpu/classes/total:cpu-seconds"}, {Name: "/cpu/classes/idle:cpu-seconds"}}
	runtime.GC() // which brings them up to date
	metrics.Read(sample)
	return time.Duration((sample[0].Value.Float64() - sample[1].Value.Float64()) * float64(time.Second))
}

func listen(b *testing.B) net.Listener {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	return l
}
