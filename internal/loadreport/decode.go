package loadreport

import (
	"fmt"

	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// statsField is the number of LoadStatsRequest.cluster_stats (lrs.proto).
const statsField = 2

// Decode reads the load in a report, and nothing else: Envoy says its node, which may be large, in each of them. What it
// returns keeps nothing of the report.
func Decode(report []byte) (stats []*endpoint.ClusterStats, err error) {
	for len(report) > 0 {
		number, kind, n := protowire.ConsumeTag(report)
		if n < 0 {
			return nil, fmt.Errorf("a load report is no LoadStatsRequest: %w", protowire.ParseError(n))
		}
		report = report[n:]
		if n = protowire.ConsumeFieldValue(number, kind, report); n < 0 {
			return nil, fmt.Errorf("a load report is no LoadStatsRequest: %w", protowire.ParseError(n))
		}
		if number == statsField && kind == protowire.BytesType {
			cluster := new(endpoint.ClusterStats)
			value, _ := protowire.ConsumeBytes(report)
			if err := proto.Unmarshal(value, cluster); err != nil {
				return nil, fmt.Errorf("a load report cannot be read: %w", err)
			}
			stats = append(stats, cluster)
		}
		report = report[n:]
	}
	return stats, nil
}
