package downstream

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/xds-relay/xds-relay/downstream/session"
)

const (
	fetchMethod = "/envoy.service.endpoint.v3.EndpointDiscoveryService/FetchEndpoints"
	checkMethod = "/grpc.health.v1.Health/Check"
	watchMethod = "/grpc.health.v1.Health/Watch"
)

// halfCall begins a call without its request.
func halfCall(t *testing.T, conn *grpc.ClientConn, method string) grpc.ClientStream {
	t.Helper()
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return stream
}

// TestCallsWithoutARequest: a call has a place among all streams before its request has come, loses it to a client with
// fewer, and ends if the request does not come.
func TestCallsWithoutARequest(t *testing.T) {
	for _, method := range []string{fetchMethod, checkMethod, watchMethod} {
		t.Run(method, func(t *testing.T) {
			sharing(t, ServerConfig{MaxStreamsOfAll: 2}, func(t *testing.T, h hosts, s *Server, seen *endings) {
				many, other := h.connect(t, "192.0.2.1"), h.connect(t, "198.51.100.1")
				defer many.Close()
				defer other.Close()
				first, second := halfCall(t, many, method), halfCall(t, many, method)
				if end := endOf(halfCall(t, many, method)); end.Code() != codes.ResourceExhausted || seen.ended(session.StreamsFull) != 1 {
					t.Errorf("one too many: %v; counted: %v", end, seen.ends)
				}
				fine := open(t, other)
				if end := endOf(second); end.Code() != codes.ResourceExhausted || seen.ended(session.DisplacedStream) != 1 {
					t.Errorf("displaced: %v; counted: %v", end, seen.ends)
				}
				time.Sleep(requestWithin)
				synctest.Wait()
				if end := endOf(first); end.Code() != codes.ResourceExhausted || seen.ended(session.OverLimit) != 1 {
					t.Errorf("after %v: %v; counted: %v", requestWithin, end, seen.ends)
				}
				if end := endOf(fine); end != nil {
					t.Errorf("the stream: %v", end)
				}
				s.mu.Lock()
				used := s.places.Used()
				s.mu.Unlock()
				if used != 1 {
					t.Errorf("%d places are used", used)
				}
			})
		})
	}
}

// TestCallsGiveTheirPlaceBack: a call that was answered has no place any more.
func TestCallsGiveTheirPlaceBack(t *testing.T) {
	sharing(t, ServerConfig{MaxStreamsOfAll: 1}, func(t *testing.T, h hosts, _ *Server, seen *endings) {
		conn := h.connect(t, "192.0.2.1")
		defer conn.Close()
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			err := conn.Invoke(ctx, checkMethod, new(discovery.DiscoveryRequest), new(discovery.DiscoveryResponse))
			cancel()
			if err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		if len(seen.ends) > 0 {
			t.Errorf("counted: %v", seen.ends)
		}
	})
}
