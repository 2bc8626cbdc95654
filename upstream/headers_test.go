package upstream

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/internal/header"
	"github.com/xds-relay/xds-relay/upstream/session"
)

// TestStreamsAndChecksHaveHeaders: the relay's own are read for each of them, and those
// of clients go with the streams of their group alone (NODE-13).
func TestStreamsAndChecksHaveHeaders(t *testing.T) {
	const name = "authorization"
	asked := make(chan []string, 10)
	p := serve(t, loopback(t), func(ctx context.Context) error {
		md, _ := metadata.FromIncomingContext(ctx)
		asked <- append(md.Get(name), md.Get("x-client")...)
		return status.Error(codes.Unauthenticated, "not with canary-0002")
	}, grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		md, _ := metadata.FromIncomingContext(s.Context())
		asked <- append(md.Get(name), md.Get("x-client")...)
		if len(md.Get("x-client")) > 0 {
			return status.Error(codes.PermissionDenied, "not with canary-client, nor with Bearer canary-0003")
		}
		return next(srv, s)
	}))
	var reads atomic.Int32
	var missing atomic.Bool
	c := reach(t, Endpoint{Target: p.address, Headers: func() ([]header.Header, error) {
		if missing.Load() {
			return nil, errors.New("authorization: no such file")
		}
		return []header.Header{{Name: name, Value: header.Value("Bearer canary-000" + string('0'+byte(reads.Add(1))))}}, nil
	}})
	heard := func(want ...string) {
		t.Helper()
		if got := <-asked; !slices.Equal(got, want) {
			t.Errorf("the control plane was shown %q, want %q", got, want)
		}
	}
	s, _ := open(t, c, 1)
	heard("Bearer canary-0001")
	if k := ask(t, c, s, checkTimeout); k.Result != session.There || k.Message != "not with [redacted]" {
		t.Errorf("a check: %+v", k)
	}
	heard("Bearer canary-0002")

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	refused, err := c.open(ctx, 2, ads, session.Main, false, nil, []header.Header{{Name: "x-client", Value: "canary-client"}, {Name: "x-client", Value: "again"}})
	if err != nil {
		t.Fatal(err)
	}
	defer refused.leave()
	heard("Bearer canary-0003", "canary-client", "again")
	_, err = refused.receive()
	end, reason := Ending(err)
	if want := "not with [redacted], nor with Bearer [redacted]"; end.Message != want || end.Kind != session.EndDenied || reason != "refused" {
		t.Errorf("%+v, %s; want %s", end, reason, want)
	}

	missing.Store(true)
	if k := ask(t, c, s, checkTimeout); k.Result != session.There {
		t.Errorf("a check without: %+v", k)
	}
	heard()
	_, err = c.open(ctx, 3, ads, session.Main, false, nil, nil)
	end, reason = Ending(err)
	if end.Kind != session.EndBroken || reason != "unavailable" || !strings.Contains(end.Message, "authorization: no such file") {
		t.Errorf("a stream without: %+v, %s", end, reason)
	}
}
