package e2e

import (
	"bytes"
	"context"
	"testing"
	"time"

	v2 "github.com/envoyproxy/go-control-plane/envoy/api/v2"
	corev2 "github.com/envoyproxy/go-control-plane/envoy/api/v2/core"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xds-relay/xds-relay/cache"
)

const clusterV2 cache.TypeURL = "type.googleapis.com/envoy.api.v2.Cluster"

// clusterOfV2 is the body of a v2 cluster, with a field that v3 does not have (hosts) and one that nobody knows.
func clusterOfV2(t *testing.T, name string, revision int) []byte {
	t.Helper()
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(&v2.Cluster{
		Name: name, ConnectTimeout: durationpb.New(time.Duration(revision) * time.Second),
		Hosts: []*corev2.Address{{Address: &corev2.Address_Pipe{Pipe: &corev2.Pipe{Path: "/run/" + name}}}}, //nolint:staticcheck // v3 does not have it
	})
	if err != nil {
		t.Fatal(err)
	}
	return append(body, 0xf8, 0xff, 0xff, 0xff, 0x0f, 1)
}

// Clients made of v2's own messages and stubs get v2 and v3 resources through the relay byte for byte, by every kind of
// method, and what changes and goes (V2-1, V2-2, DOWN-SOTW-6).
func TestV2(t *testing.T) {
	t.Parallel()
	w := newLinear(t, clusterV2, cache.Cluster)
	a, b := clusterOfV2(t, "a", 1), clusterOfV2(t, "b", 1)
	w.Set(clusterV2, "a", raw(a))
	w.Set(clusterV2, "b", raw(b))
	current := raw([]byte{0x0a, 1, 'c', 0xf8, 0xff, 0xff, 0xff, 0x0f, 1})
	w.Set(cache.Cluster, "c", current)
	cp := startControlPlane(t, w.Mux())
	r := startRelay(t, cp.addr, "downstream.v2_transport=true")
	conn := dial(t, r.addr)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	node := &corev2.Node{Id: "old", BuildVersion: "1.14"} //nolint:staticcheck // clients of v2 still say it

	delta, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	sotw, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	one, err := v2.NewClusterDiscoveryServiceClient(conn).StreamClusters(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(u cache.TypeURL) (*v2.DeltaDiscoveryResponse, *v2.DiscoveryResponse) {
		t.Helper()
		d, err := delta.Recv()
		if err != nil {
			t.Fatal(err)
		}
		s, err := sotw.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if d.GetTypeUrl() != string(u) || s.GetTypeUrl() != string(u) {
			t.Fatalf("the types are %s and %s, want %s", d.GetTypeUrl(), s.GetTypeUrl(), u)
		}
		_ = delta.Send(&v2.DeltaDiscoveryRequest{TypeUrl: string(u), ResponseNonce: d.GetNonce()})
		_ = sotw.Send(&v2.DiscoveryRequest{TypeUrl: string(u), ResponseNonce: s.GetNonce(), VersionInfo: s.GetVersionInfo()})
		return d, s
	}
	for _, u := range []cache.TypeURL{clusterV2, cache.Cluster} {
		_ = delta.Send(&v2.DeltaDiscoveryRequest{Node: node, TypeUrl: string(u)})
		_ = sotw.Send(&v2.DiscoveryRequest{Node: node, TypeUrl: string(u)})
		d, s := ask(u)
		want := map[string][]byte{"a": a, "b": b}
		if u == cache.Cluster {
			body, err := proto.Marshal(current)
			if err != nil {
				t.Fatal(err)
			}
			want = map[string][]byte{"c": body}
		}
		if len(d.GetResources()) != len(want) || len(s.GetResources()) != len(want) {
			t.Fatalf("%s: Delta brings %d, SotW %d, want %d", u, len(d.GetResources()), len(s.GetResources()), len(want))
		}
		for _, got := range d.GetResources() {
			if body := got.GetResource(); body.GetTypeUrl() != string(u) || !bytes.Equal(body.GetValue(), want[got.GetName()]) {
				t.Errorf("Delta: %s is %s %x, want %x", got.GetName(), body.GetTypeUrl(), body.GetValue(), want[got.GetName()])
			}
		}
		for _, body := range s.GetResources() {
			if name := nameIn(body.GetValue()); body.GetTypeUrl() != string(u) || !bytes.Equal(body.GetValue(), want[name]) {
				t.Errorf("SotW: %s is %s %x, want %x", name, body.GetTypeUrl(), body.GetValue(), want[name])
			}
		}
	}

	_ = one.Send(&v2.DiscoveryRequest{Node: node})
	set, err := one.Recv()
	if err != nil || len(set.GetResources()) != 2 || set.GetTypeUrl() != string(clusterV2) {
		t.Errorf("the stream of one type: %v, %v", set, err)
	}
	set, err = v2.NewClusterDiscoveryServiceClient(conn).FetchClusters(ctx, &v2.DiscoveryRequest{Node: node})
	if err != nil || len(set.GetResources()) != 2 || set.GetTypeUrl() != string(clusterV2) {
		t.Errorf("Fetch: %v, %v", set, err)
	}

	a = clusterOfV2(t, "a", 2)
	w.Set(clusterV2, "a", raw(a))
	if d, s := ask(clusterV2); len(d.GetResources()) != 1 || !bytes.Equal(d.GetResources()[0].GetResource().GetValue(), a) || len(s.GetResources()) != 2 {
		t.Errorf("a change: %v, %v", d, s)
	}
	w.Delete(clusterV2, "b")
	if d, s := ask(clusterV2); len(d.GetRemovedResources()) != 1 || len(s.GetResources()) != 1 || !bytes.Equal(s.GetResources()[0].GetValue(), a) {
		t.Errorf("a removal: %v, %v", d, s)
	}
	eventually(t, time.Second, func() error { return cp.deltaADSOnly() })

	without := startRelay(t, cp.addr)
	if _, err := v2.NewClusterDiscoveryServiceClient(dial(t, without.addr)).FetchClusters(ctx, &v2.DiscoveryRequest{Node: node}); status.Code(err) != codes.Unimplemented {
		t.Errorf("without downstream.v2_transport: %v, want UNIMPLEMENTED", err)
	}
}
