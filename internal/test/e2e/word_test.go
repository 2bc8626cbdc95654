package e2e

import (
	"context"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/hop"
	"github.com/xds-relay/xds-relay/internal/relay"
)

// A client claims a way that the relay above refuses, for it has that relay's own id: the relay below ends that client
// with the reason, and serves the others (NODE-11, UP-21).
func TestAWayThatTheRelayAboveRefuses(t *testing.T) {
	t.Parallel()
	w := newLinear(t)
	w.service("a", "127.0.0.1:1")
	cp := startControlPlane(t, w.Mux())
	regional := startRelayWith(t, relay.Options{Hop: "regional/0"}, cp.addr)
	sidecar := startRelay(t, regional.addr)
	witness := openDelta(t, sidecar.addr, "witness")
	witness.Wildcard(cache.Cluster)
	eventually(t, patience, func() error { return witness.Has(cache.Cluster, "a-cluster") })

	ctx := metadata.AppendToOutgoingContext(t.Context(), hop.ViaHeader, "regional/0")
	ended := func() (err error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		claims, err := discovery.NewAggregatedDiscoveryServiceClient(dial(t, sidecar.addr)).DeltaAggregatedResources(ctx)
		if err != nil {
			return err
		}
		_ = claims.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "claims"}, TypeUrl: string(cache.Cluster)})
		for err == nil {
			_, err = claims.Recv()
		}
		return err
	}
	for range 2 { // whoever comes back is refused at once
		if end := status.Convert(ended()); end.Code() != codes.FailedPrecondition || !strings.Contains(end.Message(), "(regional/0)") || !strings.Contains(end.Message(), "break the loop") {
			t.Fatalf("the client is ended by %v", end)
		}
	}
	w.service("b", "127.0.0.1:1")
	eventually(t, patience, func() error { return witness.Has(cache.Cluster, "a-cluster", "b-cluster") })
}
