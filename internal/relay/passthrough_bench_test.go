package relay

import (
	"net"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	lrs "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xds-relay/xds-relay/internal/config"
)

// BenchmarkPassThrough is what a load report costs on its way to a control plane, client and control plane included, over
// loopback: the difference between relayed and direct is the relay's. The clock stops when the last one has arrived.
func BenchmarkPassThrough(b *testing.B) {
	for _, size := range []int{100, 10_000} {
		for _, relayed := range []bool{false, true} {
			name := map[bool]string{false: "direct", true: "relayed"}[relayed]
			b.Run(name+"/"+map[int]string{100: "100B", 10_000: "10kB"}[size], func(b *testing.B) {
				arrived := make(chan error, 1)
				plane := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
					m := new(lrs.LoadStatsRequest)
					for range b.N + 1 { // and the node
						if err := s.RecvMsg(m); err != nil {
							arrived <- err
							return err
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
				if relayed {
					c, err := config.Load("", []string{"upstream.address=" + to, "passthrough=[{service: " + config.LoadReporting + "}]"})
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
				if err := s.Send(&lrs.LoadStatsRequest{Node: &core.Node{Id: "n"}}); err != nil {
					b.Fatal(err)
				}
				report := &lrs.LoadStatsRequest{ClusterStats: []*endpoint.ClusterStats{{ClusterName: strings.Repeat("c", size)}}}
				b.SetBytes(int64(size))
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N {
					if err := s.Send(report); err != nil {
						b.Fatal(err)
					}
				}
				if err := <-arrived; err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

func listen(b *testing.B) net.Listener {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	return l
}
