package downstream

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
)

// TestRapidReset: over a real socket, a client that opens streams and resets them at once, of whatever method, or that opens
// more than it may have, is cut off soon, while another one goes on to get its updates.
func TestRapidReset(t *testing.T) {
	const ads = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
	for _, c := range []struct {
		name, method string
		resets       bool
	}{
		{"ads", ads, true},
		{"health", "/grpc.health.v1.Health/Watch", true},
		{"unknown", "/no/such", true},
		{"open", ads, false}, // gRPC refuses those beyond max_streams_per_connection itself
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var seen closings
			hub, wanted := fanout.NewHub(fanout.Config{}), make(chan struct{}, 1)
			hub.Wanted().OnWake(func() {
				select {
				case wanted <- struct{}{}:
				default:
				}
			})
			_, stop := serving(t, ServerConfig{
				Config: session.Config{AckTimeout: time.Minute, MaxName: 100, MaxNames: 100}, Groups: oneGroup{hub}, Credentials: insecure.NewCredentials(), Observer: &seen,
			}, l)
			defer stop()
			victim := subscribed(t, l.Addr().String())
			change := func(version int) {
				hub.Apply(fanout.Lane{Type: cache.Endpoint}, &cache.Update{Set: []cache.Received{{Resource: cache.NewResource(cache.Endpoint, &discovery.Resource{
					Name: "a", Resource: &anypb.Any{TypeUrl: string(cache.Endpoint), Value: fmt.Appendf(nil, "\x0a\x01a\x1a\x02%d", version)},
				}, cache.Fingerprint{})}}})
			}
			<-wanted
			change(10)
			victim(t)
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = io.Copy(io.Discard, conn) // its end is what counts
			}()
			opened := rapidReset(conn, c.method, c.resets)
			if opened == most {
				conn.Close() // nobody stops it
			}
			<-ended
			if n := seen.of(ClosedFlood); n != 1 {
				t.Errorf("after %d streams: closed %v", opened, seen.counts)
			}
			for version := 11; version < 20; version++ {
				change(version)
				victim(t)
			}
		})
	}
}

// most is how many streams it opens at most.
const most = 100_000

// rapidReset opens streams, and resets them if resets, until that fails, and returns how many.
func rapidReset(conn net.Conn, method string, resets bool) (opened int) {
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return 0
	}
	var headers bytes.Buffer
	encoder := hpack.NewEncoder(&headers)
	framer := http2.NewFramer(conn, nil)
	if framer.WriteSettings() != nil {
		return 0
	}
	for ; opened < most; opened++ {
		headers.Reset()
		for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "relay"}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
			if encoder.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}) != nil {
				return opened
			}
		}
		id := uint32(2*opened + 1)
		if framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: headers.Bytes(), EndHeaders: true}) != nil || resets && framer.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
			return opened
		}
	}
	return opened
}

// subscribed connects a client that asks for one name. next waits for a response and acknowledges it.
func subscribed(t *testing.T, address string) (next func(t *testing.T)) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Endpoint), ResourceNamesSubscribe: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	return func(t *testing.T) {
		t.Helper()
		r, err := stream.Recv()
		if err != nil || len(r.GetResources()) != 1 {
			t.Fatalf("the victim got %v, %v", r, err)
		}
		if err := stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Endpoint), ResponseNonce: r.GetNonce()}); err != nil {
			t.Fatal(err)
		}
	}
}
