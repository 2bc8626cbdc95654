package downstream

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	cluster "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/stats"
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
			_, stop := serving(t, ServerConfig{Credentials: insecure.NewCredentials(), Offers: Offers{AcceptGzip: tt.accepts}, Log: slog.New(slog.NewTextHandler(&log, nil))}, l)
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
			health := healthpb.NewHealthClient(conn)
			probe := &healthpb.HealthCheckRequest{Service: strings.Repeat("s", 2*maxProbe)}
			limit := "a health check of "
			if tt.code == codes.InvalidArgument {
				limit = tt.says
			}
			_, err = health.Check(t.Context(), probe, tt.options...)
			if s := status.Convert(err); s.Code() != tt.code || !strings.Contains(s.Message(), limit) {
				t.Errorf("a health check: %v", err)
			}
			watch, err := health.Watch(t.Context(), probe, tt.options...)
			if err != nil {
				t.Fatal(err)
			}
			_, err = watch.Recv()
			if s := status.Convert(err); s.Code() != tt.code || !strings.Contains(s.Message(), limit) {
				t.Errorf("a health watch: %v", err)
			}
			stop()
			if n := strings.Count(log.String(), "client refused"); n != 2 {
				t.Errorf("the log tells of %d refusals, want 2:\n%s", n, &log)
			}
		})
	}
}

// TestAnswersAreNotCompressed: not even for a client that compresses what it sends.
func TestAnswersAreNotCompressed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serving(t, ServerConfig{Credentials: insecure.NewCredentials(), Offers: Offers{AcceptGzip: true}}, l)
	var by compression
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStatsHandler(&by))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}, grpc.UseCompressor("gzip")); err != nil {
		t.Fatal(err)
	}
	if len(by.answers) != 1 || by.answers[0] != "" {
		t.Errorf("answers are compressed by %q", by.answers)
	}
}

// compression writes down how the answers to a client are compressed.
type compression struct {
	stats.Handler
	answers []string
}

func (c *compression) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (c *compression) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (c *compression) HandleConn(context.Context, stats.ConnStats)                       {}
func (c *compression) HandleRPC(_ context.Context, s stats.RPCStats) {
	if in, ok := s.(*stats.InHeader); ok {
		c.answers = append(c.answers, in.Compression)
	}
}

// TestRequestsAreInFlight: what has come of a request counts until it is taken in, with TLS and without.
func TestRequestsAreInFlight(t *testing.T) {
	hops(t, func(t *testing.T, l net.Listener, server, client credentials.TransportCredentials) {
		s, _ := serving(t, ServerConfig{Credentials: server, MaxInflight: 4 << 20}, l)
		raw, err := net.Dial(l.Addr().Network(), l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conn, _, err := client.ClientHandshake(t.Context(), "relay", raw)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var headers bytes.Buffer
		encoder := hpack.NewEncoder(&headers)
		for _, f := range [][2]string{
			{":method", "POST"}, {":scheme", "http"}, {":path", "/grpc.health.v1.Health/Check"}, {":authority", "relay"},
			{"content-type", "application/grpc"}, {"te", "trailers"},
		} {
			if err := encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
				t.Fatal(err)
			}
		}
		const size = 40 << 10
		request := append(binary.BigEndian.AppendUint32([]byte{0}, size), make([]byte, size)...)
		f := http2.NewFramer(conn, nil)
		_, first := io.WriteString(conn, http2.ClientPreface)
		for _, err := range []error{
			first, f.WriteSettings(), f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headers.Bytes(), EndHeaders: true}),
			f.WriteData(1, false, request[:16<<10]), f.WriteData(1, false, request[16<<10:30<<10]),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		const least, most = 30 << 10, 33 << 10
		await(t, func() bool { n := s.Summary().Inflight; return n >= least && n <= most })
		if err := f.WriteData(1, true, request[30<<10:]); err != nil {
			t.Fatal(err)
		}
		await(t, func() bool { return s.Summary().Inflight == 0 })
		if err := f.WriteData(3, false, request[:10]); err != nil { // of a stream that is none
			t.Fatal(err)
		}
		await(t, func() bool { return s.Summary().Inflight > 0 })
		conn.Close()
		await(t, func() bool { return s.Summary().Inflight == 0 })
	})
}
