package peer

import (
	"context"
	"errors"
	"net"
	"regexp"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
)

// obliging has whatever it is asked for by name, removes what is given up, and ends a
// stream over a rejection.
type obliging struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
}

func (obliging) DeltaAggregatedResources(s discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	for {
		r, err := s.Recv()
		if err != nil {
			return nil
		}
		if r.GetErrorDetail() != nil {
			return status.Error(codes.Aborted, "so be it")
		}
		if len(r.GetResourceNamesSubscribe())+len(r.GetResourceNamesUnsubscribe()) == 0 {
			continue
		}
		resp := &discovery.DeltaDiscoveryResponse{TypeUrl: r.GetTypeUrl(), Nonce: "7", RemovedResources: r.GetResourceNamesUnsubscribe()}
		for _, name := range r.GetResourceNamesSubscribe() {
			resp.Resources = append(resp.Resources, &discovery.Resource{Name: name, Version: "v", Resource: &anypb.Any{TypeUrl: r.GetTypeUrl()}})
		}
		if err := s.Send(resp); err != nil {
			return err
		}
	}
}

// What is said through a tap arrives, and is on its tape; a check of the server's health
// passes, and is not.
func TestTap(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(s, obliging{})
	healthpb.RegisterHealthServer(s, health.NewServer())
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(l) // it ends with Stop
	}()
	t.Cleanup(func() {
		s.Stop()
		<-served
	})
	tp := StartTap(t, "the tap", l.Addr().String(), TapOptions{})
	conn, err := grpc.NewClient("passthrough:///"+tp.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), short)
	defer cancel()
	if r, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}); err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", r, err)
	}

	k := StartTalk(context.Background(), t, conn)
	hears := func(want string) {
		t.Helper()
		if got, err := k.Hear(short); err != nil || got != want {
			t.Errorf("heard %q, %v, want %q", got, err, want)
		}
	}
	cds := string(cache.Cluster)
	k.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "me"}, TypeUrl: cds, ResourceNamesSubscribe: []string{"b", "a"}})
	hears("CDS +a +b")
	if k.Versions["CDS"]["a"] != "v" || k.Nonces["CDS"] != "7" {
		t.Errorf("versions %v, nonces %v", k.Versions, k.Nonces)
	}
	k.Send(&discovery.DeltaDiscoveryRequest{
		TypeUrl: cds, ResponseNonce: "7", ResourceNamesUnsubscribe: []string{"a"},
		InitialResourceVersions: map[string]string{"c": "v"},
	})
	hears("CDS -a")
	if got, err := k.Hear(50 * time.Millisecond); got != "" || err != nil {
		t.Errorf("heard %q, %v, want nothing", got, err)
	}
	k.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: cds, ResponseNonce: "7", ErrorDetail: &statuspb.Status{Message: "no"}})
	if _, err := k.Hear(short); status.Code(err) != codes.Aborted {
		t.Errorf("the stream ends with %v", err)
	}
	Eventually(t, short, func() error {
		if tp.Mark() < 6 {
			return errors.New("the end is not on the tape")
		}
		return nil
	})
	said := regexp.MustCompile(`(?m)^ *[0-9.]+s `).ReplaceAllString(Spell(tp.Since(0)), "")
	const want = `#1 > CDS +b +a node=me
#1 < CDS +b +a nonce=7
#1 > CDS -a init=1 ack=7
#1 < CDS -a nonce=7
#1 > CDS nack=7 no
#1 < end: rpc error: code = Aborted desc = so be it
`
	if said != want || tp.Opened() != 1 {
		t.Errorf("%d streams; the tape has\n%swant\n%s", tp.Opened(), said, want)
	}
}

// The name of a resource is found in its body, and in a wrapper.
func TestNameIn(t *testing.T) {
	body := &anypb.Any{TypeUrl: string(cache.Cluster), Value: []byte{0x10, 3, 0x0a, 1, 'a'}} // type, name
	wrapped, err := anypb.New(&discovery.Resource{Name: "b", Resource: body})
	if err != nil {
		t.Fatal(err)
	}
	for want, r := range map[string]*anypb.Any{"a": body, "b": wrapped, "": {Value: []byte{0x0a}}} {
		if got := NameIn(r); got != want {
			t.Errorf("the name is %q, not %q", got, want)
		}
	}
}
