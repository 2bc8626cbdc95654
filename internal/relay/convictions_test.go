package relay

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/test/xdstest"
)

// refusing is a control plane that has one resource of each type, and ends each stream which asks for a Listener,
// until it is mild.
type refusing struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	mild *atomic.Bool
}

func (p refusing) DeltaAggregatedResources(s discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	for {
		req, err := s.Recv()
		switch {
		case err != nil:
			return err
		case req.GetTypeUrl() == string(cache.Listener) && !p.mild.Load():
			return status.Error(codes.InvalidArgument, "unknown type")
		case req.GetResponseNonce() == "":
			one := &discovery.Resource{Name: "a", Version: "1", Resource: &anypb.Any{TypeUrl: req.GetTypeUrl()}}
			_ = s.Send(&discovery.DeltaDiscoveryResponse{TypeUrl: req.GetTypeUrl(), Nonce: "1", Resources: []*discovery.Resource{one}})
		}
	}
}

// quarantines counts the types in quarantine.
type quarantines struct {
	above
	now atomic.Int64
}

func (q *quarantines) UpstreamQuarantine(_ cache.TypeURL, convicted bool) {
	if convicted {
		q.now.Add(1)
	} else {
		q.now.Add(-1)
	}
}

// TestQuarantineEndsWithTheGroup: when a group ends, the types that its control plane refused are in
// quarantine no more.
func TestQuarantineEndsWithTheGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := config.Load("", []string{"groups.key=[id]", "timers.group_linger=1s", "timers.name_linger=1s"})
		if err != nil {
			t.Fatal(err)
		}
		w := &world{t: t, up: xdstest.NewNetwork(), down: xdstest.NewNetwork()}
		server := grpc.NewServer()
		discovery.RegisterAggregatedDiscoveryServiceServer(server, refusing{mild: new(atomic.Bool)})
		go func() { _ = server.Serve(w.up.Listener()) }()
		var q quarantines
		if w.relay, err = New(c, Options{Dial: w.up.Dial, Upstream: &q}); err != nil {
			t.Fatal(err)
		}
		w.relay.Serve(w.down.Listener())
		conn := w.dial()
		a := w.open(conn, "a", false)
		a.send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "a"}, TypeUrl: string(cache.Listener)})
		time.Sleep(2 * time.Minute)
		if n := q.now.Load(); n != 1 {
			t.Fatalf("%d types in quarantine, want 1", n)
		}
		conn.Close()
		time.Sleep(10 * time.Minute)
		if n := len(w.relay.Groups()); n != 0 {
			t.Fatalf("%d groups", n)
		}
		if n := q.now.Load(); n != 0 {
			t.Errorf("%d types in quarantine without a group", n)
		}
		w.clients.Wait()
		w.relay.Close(0)
		server.Stop()
	})
}
