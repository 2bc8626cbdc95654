package loadreport

import (
	"fmt"
	"testing"

	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	lrs "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/proto"
)

// BenchmarkReport is what a report costs from the wire to the sum, without gRPC.
func BenchmarkReport(b *testing.B) {
	for _, clusters := range []int{1, 100} {
		b.Run(fmt.Sprintf("%dclusters", clusters), func(b *testing.B) {
			var stats []*endpoint.ClusterStats
			for n := range clusters {
				stats = append(stats, report(fmt.Sprintf("outbound|8080||service-%03d.shop.svc.cluster.local", n), 10, zone("eu-1a", 3, 2))...)
			}
			wire, err := proto.Marshal(&lrs.LoadStatsRequest{ClusterStats: stats})
			if err != nil {
				b.Fatal(err)
			}
			s := New(NewRoom(64<<20), func(Reason, int) {}, start)
			s.Ask(&lrs.LoadStatsResponse{SendAllClusters: true})
			c := s.Join()
			b.SetBytes(int64(len(wire)))
			b.ReportAllocs()
			for b.Loop() {
				stats, err := Decode(wire)
				if err != nil {
					b.Fatal(err)
				}
				c.Report(stats, nil, start)
			}
		})
	}
}
