package broadcast

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xds-relay/xds-relay/bench/internal/world"
)

// talk starts a server with a world, and opens a Delta stream to it.
func talk(t *testing.T, s *Server) discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient {
	t.Helper()
	stream := dial(t, s)
	populate(t, s)
	return stream
}

func populate(t *testing.T, s *Server) {
	t.Helper()
	if err := s.World(world.Spec{Clusters: 3, Assignments: 3, Endpoints: 1, Changes: world.Endpoint}); err != nil {
		t.Fatal(err)
	}
}

// dial starts a server, and opens a Delta stream to it.
func dial(t *testing.T, s *Server) discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // until it is stopped
	}()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		s.Stop()
		<-done
	})
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// TestSubscriptions: a relay in front of it may ask in any way that there is.
func TestSubscriptions(t *testing.T) {
	s := New(grpc.WaitForHandlers(true))
	c := talk(t, s)
	step := 0
	for _, test := range []struct {
		send *discovery.DeltaDiscoveryRequest
		want string // the answer, and who hears of the next three changes
	}{
		{&discovery.DeltaDiscoveryRequest{TypeUrl: world.Endpoint.TypeURL(), ResourceNamesSubscribe: []string{"endpoints-00001", "nobody"}}, "endpoints-00001@0; endpoints-00001"},
		{&discovery.DeltaDiscoveryRequest{TypeUrl: world.Endpoint.TypeURL(), ResourceNamesSubscribe: []string{"endpoints-00002"}, ResourceNamesUnsubscribe: []string{"endpoints-00001"}}, "endpoints-00002@3; endpoints-00002"},
		{&discovery.DeltaDiscoveryRequest{TypeUrl: world.Cluster.TypeURL(), ResourceNamesSubscribe: []string{"*"}}, "cluster-00000@0 cluster-00001@0 cluster-00002@0; endpoints-00002"},
	} {
		if err := c.Send(test.send); err != nil {
			t.Fatal(err)
		}
		got := heard(t, c, true) + "; "
		for range 3 {
			step++
			if err := s.Step(step); err != nil {
				t.Fatal(err)
			}
		}
		if got += heard(t, c, false); got != test.want {
			t.Errorf("%v: %s, want %s", test.send, got, test.want)
		}
	}
	if err := s.World(world.Spec{}); err == nil {
		t.Error("the world is taken from under its clients")
	}
}

// heard is one response: the names in it, in their order, and their versions if asked.
func heard(t *testing.T, c discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient, versions bool) string {
	t.Helper()
	r, err := c.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, res := range r.GetResources() {
		text := res.GetName()
		if versions {
			v := res.GetVersion()
			if v != "0" { // the step that changed it last depends on the seed
				v = "3"
			}
			text += "@" + v
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func TestWhoHasEverythingIsSentNothing(t *testing.T) {
	c := talk(t, New(grpc.WaitForHandlers(true)))
	request := &discovery.DeltaDiscoveryRequest{TypeUrl: world.Cluster.TypeURL(), InitialResourceVersions: map[string]string{}}
	for i := range 3 {
		request.InitialResourceVersions[fmt.Sprintf("cluster-%05d", i)] = "0"
	}
	if err := c.Send(request); err != nil {
		t.Fatal(err)
	}
	if got := heard(t, c, true); got != "" {
		t.Errorf("it is sent %s", got)
	}
}

// TestOriginSendsWhatDiffers: a relay that has outlived one origin comes to the next with
// what it has.
func TestOriginSendsWhatDiffers(t *testing.T) {
	const old = "step 9 of another world"
	clusters := map[string]string{"cluster-00000": "0", "cluster-00001": old}
	endpoints := map[string]string{"endpoints-00000": "0", "endpoints-00001": old}
	for _, test := range []struct {
		send          *discovery.DeltaDiscoveryRequest
		origin, floor string // what each of them sends
	}{
		{&discovery.DeltaDiscoveryRequest{TypeUrl: world.Cluster.TypeURL(), InitialResourceVersions: clusters}, "cluster-00001 cluster-00002", ""},
		{&discovery.DeltaDiscoveryRequest{TypeUrl: world.Cluster.TypeURL(), ResourceNamesSubscribe: []string{"*"}, InitialResourceVersions: clusters}, "cluster-00001 cluster-00002", ""},
		{&discovery.DeltaDiscoveryRequest{TypeUrl: world.Cluster.TypeURL(), InitialResourceVersions: map[string]string{"cluster-00000": "0", "cluster-00001": "0", "cluster-00002": "0"}}, "", ""},
		{&discovery.DeltaDiscoveryRequest{
			TypeUrl: world.Endpoint.TypeURL(), ResourceNamesSubscribe: []string{"endpoints-00000", "endpoints-00001", "nobody"}, InitialResourceVersions: endpoints,
		}, "endpoints-00001", ""},
		{&discovery.DeltaDiscoveryRequest{TypeUrl: world.Endpoint.TypeURL(), ResourceNamesSubscribe: []string{"endpoints-00002"}, InitialResourceVersions: endpoints}, "endpoints-00002", ""},
	} {
		for s, want := range map[*Server]string{NewOrigin(grpc.WaitForHandlers(true)): test.origin, New(grpc.WaitForHandlers(true)): test.floor} {
			c := talk(t, s)
			if err := c.Send(test.send); err != nil {
				t.Fatal(err)
			}
			if got := heard(t, c, false); got != want {
				t.Errorf("%v: compares=%v sends %q, want %q", test.send, s.compares, got, want)
			}
		}
	}
}

// TestARelayMayComeBeforeTheWorld: one that runs already dials whenever it likes.
func TestARelayMayComeBeforeTheWorld(t *testing.T) {
	came := make(chan struct{})
	s := NewOrigin(grpc.WaitForHandlers(true), grpc.StreamInterceptor(func(srv any, g grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		close(came)
		return handle(srv, g)
	}))
	c := dial(t, s)
	if err := c.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: world.Cluster.TypeURL()}); err != nil {
		t.Fatal(err)
	}
	<-came
	populate(t, s)
	if got, want := heard(t, c, false), "cluster-00000 cluster-00001 cluster-00002"; got != want {
		t.Errorf("it is sent %q, want %q", got, want)
	}
	if stats, err := s.Stats(); err != nil || stats.Streams != 1 {
		t.Errorf("%d streams (%v), want 1", stats.Streams, err)
	}
}
