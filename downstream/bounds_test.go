package downstream

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	cluster "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
)

// TestBoundsComeBeforeDecoding: a request that is compressed, or whose parts are too large, is refused on streams and
// unary calls before anything of it is used. A Server without Groups would panic at a request that it takes in.
func TestBoundsComeBeforeDecoding(t *testing.T) {
	zip := []grpc.CallOption{grpc.UseCompressor("gzip")}
	large := &discovery.DiscoveryRequest{Node: &core.Node{Id: strings.Repeat("n", 3<<19)}}
	heavy := &discovery.DiscoveryRequest{Node: &core.Node{Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
		"m": structpb.NewListValue(&structpb.ListValue{Values: make([]*structpb.Value, 100_000)}),
	}}}}
	for _, tt := range []struct {
		what    string
		accepts bool
		request *discovery.DiscoveryRequest
		options []grpc.CallOption
		code    codes.Code
		says    string
	}{
		{"compressed", false, large, zip, codes.InvalidArgument, `compressed requests ("gzip") are refused; send them as they are, or set downstream.accept_gzip`},
		{"too large when it is inflated", true, large, zip, codes.ResourceExhausted, "a request of 15728"},
		{"too large", false, large, nil, codes.ResourceExhausted, "a request of 15728"},
		{"a heavy node", false, heavy, nil, codes.ResourceExhausted, "node of 200"},
		{"a heavy node, compressed", true, heavy, zip, codes.ResourceExhausted, "node of 200"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			_, stop := serving(t, ServerConfig{Credentials: insecure.NewCredentials(), AcceptGzip: tt.accepts, Log: slog.New(slog.NewTextHandler(&log, nil))}, l)
			conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			check := func(how string, err error) {
				t.Helper()
				if s := status.Convert(err); s.Code() != tt.code || !strings.Contains(s.Message(), tt.says) {
					t.Errorf("%s: %v, want %v %q", how, err, tt.code, tt.says)
				}
			}
			stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(t.Context(), tt.options...)
			if err != nil {
				t.Fatal(err)
			}
			_ = stream.Send(tt.request) // an error is told by Recv
			_, err = stream.Recv()
			check("a stream", err)
			_, err = cluster.NewClusterDiscoveryServiceClient(conn).FetchClusters(t.Context(), tt.request, tt.options...)
			check("a call", err)
			stop()
			if n := strings.Count(log.String(), "client refused"); n != 2 {
				t.Errorf("the log tells of %d refusals, want 2:\n%s", n, &log)
			}
		})
	}
}
