package origin

import (
	"context"
	"fmt"
	"slices"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// worldOf has one resource of each type, named after a generation.
func worldOf(n int, types ...cache.TypeURL) World {
	w := make(World)
	name := fmt.Sprint(n)
	for _, t := range types {
		body := &anypb.Any{TypeUrl: string(t), Value: []byte("\n\x01" + name[:1])}
		w[t] = map[string]*cache.Resource{name: cache.NewResource(t, &discovery.Resource{Name: name, Resource: body}, cache.Fingerprint{})}
	}
	return w
}

// TestOrigin_Order: what is published comes in the order of make before break: clusters first, then what refers to
// them, and what has gone of clusters last (ORDER-2).
func TestOrigin_Order(t *testing.T) {
	types := []cache.TypeURL{cache.Cluster, cache.Endpoint, cache.Listener, cache.Route}
	o := New(Options{Name: "test", Session: session.Config{Instance: "test"}})
	defer o.Close()
	if _, err := o.Dial(t.Context(), ""); err == nil {
		t.Error("it can be reached before there is anything")
	}
	o.Publish(worldOf(0, types...))
	conn, err := grpc.NewClient("passthrough:///origin", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(o.Dial))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	send := func(req *discovery.DeltaDiscoveryRequest) {
		t.Helper()
		if err := stream.Send(req); err != nil {
			t.Fatal(err)
		}
	}
	hear := func() (said []string) {
		t.Helper()
		resp, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		send(&discovery.DeltaDiscoveryRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce()})
		short := cache.TypeURL(resp.GetTypeUrl()).Short()
		for _, r := range resp.GetResources() {
			said = append(said, short+" +"+r.GetName())
		}
		for _, name := range resp.GetRemovedResources() {
			said = append(said, short+" -"+name)
		}
		return said
	}
	for _, typ := range types {
		send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "relay"}, TypeUrl: string(typ), ResourceNamesSubscribe: []string{"*"}})
		hear()
	}
	const generations = 30
	for n := 1; n < generations; n++ {
		o.Publish(worldOf(n, types...))
		var got []string
		for len(got) < 2*len(types) {
			got = append(got, hear()...)
		}
		first, last := fmt.Sprint(" +", n), fmt.Sprint(" -", n-1)
		want := []string{"CDS" + first, "EDS" + first, "LDS" + first, "LDS" + last, "RDS" + first, "RDS" + last, "EDS" + last, "CDS" + last}
		if !slices.Equal(got, want) {
			t.Fatalf("it says\n%q\nnot\n%q", got, want)
		}
	}
}
