package wire

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

func any(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// bodies are a cluster and an assignment; the latter has a second locality, which says
// another step.
func bodies(t *testing.T) (c, e *anypb.Any) {
	c = any(t, &cluster.Cluster{
		Name: "c", AltStatName: "0000000007", ConnectTimeout: durationpb.New(3),
		ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_EDS},
		LoadAssignment:       &endpoint.ClusterLoadAssignment{ClusterName: "other", Endpoints: []*endpoint.LocalityLbEndpoints{{Locality: &core.Locality{SubZone: "0000000099"}}}},
	})
	e = any(t, &endpoint.ClusterLoadAssignment{ClusterName: "e", Endpoints: []*endpoint.LocalityLbEndpoints{
		{Locality: &core.Locality{Region: "r", SubZone: "0000000008"}, LbEndpoints: []*endpoint.LbEndpoint{{}, {}}},
		{Locality: &core.Locality{SubZone: "0000000009"}},
	}})
	return c, e
}

// scan feeds a response in pieces of a size, and writes down what the Scanner says.
func scan(s *Scanner, wire []byte, piece int) (string, error) {
	var text bytes.Buffer
	s.OnResource = func(r Resource) { fmt.Fprintf(&text, "%s@%s/%s ", r.Name, r.Version, r.Step) }
	s.Begin(len(wire))
	for b := range slices.Chunk(wire, piece) {
		if err := s.Feed(b); err != nil {
			return "", err
		}
	}
	r, err := s.Response()
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&text, "type=%s nonce=%s version=%s resources=%d removed=%d", r.TypeURL, r.Nonce, r.Version, r.Resources, r.Removed)
	return text.String(), nil
}

func TestScanner(t *testing.T) {
	c, e := bodies(t)
	delta := &discovery.DeltaDiscoveryResponse{
		SystemVersionInfo: "s", TypeUrl: "T", Nonce: "n-1", RemovedResources: []string{"x", "y"},
		ControlPlane: &core.ControlPlane{Identifier: "i"},
		Resources: []*discovery.Resource{
			{Name: "c", Version: "v1", Resource: c, Ttl: durationpb.New(5), Aliases: []string{"a"}},
			{Name: "e", Version: "v2", Resource: e}, {Name: "", Version: "v3"}, {},
		},
	}
	sotw := &discovery.DiscoveryResponse{VersionInfo: "9", TypeUrl: "T", Nonce: "n-2", Resources: []*anypb.Any{c, e, {}}}
	for _, test := range []struct {
		name  string
		delta bool
		m     proto.Message
		want  string
	}{
		{"delta", true, delta, "c@v1/0000000007 e@v2/0000000008 @v3/ @/ type=T nonce=n-1 version= resources=4 removed=2"},
		{"sotw", false, sotw, "c@/0000000007 e@/0000000008 @/ type=T nonce=n-2 version=9 resources=3 removed=0"},
		{"empty", true, &discovery.DeltaDiscoveryResponse{}, "type= nonce= version= resources=0 removed=0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			wire, err := proto.Marshal(test.m)
			if err != nil {
				t.Fatal(err)
			}
			s := NewScanner(test.delta, nil)
			for piece := 1; piece <= len(wire)+1; piece++ {
				got, err := scan(s, wire, piece)
				if err != nil || got != test.want {
					t.Fatalf("in pieces of %d:\n%s (%v), want\n%s", piece, got, err, test.want)
				}
			}
		})
	}
}

func TestScannerRejects(t *testing.T) {
	c, _ := bodies(t)
	whole, err := proto.Marshal(&discovery.DiscoveryResponse{TypeUrl: "T", Resources: []*anypb.Any{c}})
	if err != nil {
		t.Fatal(err)
	}
	for name, wire := range map[string][]byte{
		"a length beyond the message":          {2<<3 | 2, 100, 1},
		"a length beyond the message inside":   {2<<3 | 2, 3, 2<<3 | 2, 50, 0},
		"a number that does not end":           bytes.Repeat([]byte{0x80}, 12),
		"a group":                              {1<<3 | 3},
		"an end in the middle of a tag":        {0x80},
		"an end in the middle of a varint":     {1 << 3, 0x80},
		"a response that is cut":               whole[:len(whole)-2],
		"an end after the tag of a text field": {4<<3 | 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := scan(NewScanner(false, nil), wire, len(wire)); err == nil {
				t.Errorf("taken for %s", got)
			}
		})
	}
}

func FuzzScanner(f *testing.F) {
	f.Add([]byte{2<<3 | 2, 3, 2<<3 | 2, 50, 0}, true)
	f.Fuzz(func(t *testing.T, wire []byte, delta bool) {
		// Whatever the pieces, the answer is the same.
		whole, err1 := scan(NewScanner(delta, nil), wire, max(len(wire), 1))
		bytewise, err2 := scan(NewScanner(delta, nil), wire, 1)
		if (err1 == nil) != (err2 == nil) || whole != bytewise {
			t.Fatalf("in one piece %q (%v), byte by byte %q (%v)", whole, err1, bytewise, err2)
		}
	})
}

func TestRequests(t *testing.T) {
	response := Response{Nonce: []byte("n"), Version: []byte("v")}
	named := func() *Subscription { return &Subscription{TypeURL: "T", Names: []string{"a", "b"}} }

	d := named()
	d.Versions = map[string]string{"a": "1"}
	d.Prepare(true)
	var first, ack discovery.DeltaDiscoveryRequest
	decode(t, d.First(true, "node"), &first)
	want := &discovery.DeltaDiscoveryRequest{
		Node: &core.Node{Id: "node", UserAgentName: "xds-relay-bench"}, TypeUrl: "T",
		ResourceNamesSubscribe: []string{"a", "b"}, InitialResourceVersions: map[string]string{"a": "1"},
	}
	same(t, &first, want)
	decode(t, d.AppendAck(nil, true, response), &ack)
	same(t, &ack, &discovery.DeltaDiscoveryRequest{TypeUrl: "T", ResponseNonce: "n"})

	s := named()
	s.Prepare(false)
	var sotwFirst, sotwAck discovery.DiscoveryRequest
	decode(t, s.First(false, ""), &sotwFirst)
	same(t, &sotwFirst, &discovery.DiscoveryRequest{TypeUrl: "T", ResourceNames: []string{"a", "b"}})
	decode(t, s.AppendAck(nil, false, response), &sotwAck)
	same(t, &sotwAck, &discovery.DiscoveryRequest{TypeUrl: "T", ResourceNames: []string{"a", "b"}, VersionInfo: "v", ResponseNonce: "n"})

	for _, test := range []struct {
		delta, ack bool
		request    []byte
	}{
		{true, true, d.AppendAck(nil, true, response)}, {true, false, d.First(true, "node")},
		{false, true, s.AppendAck(nil, false, response)}, {false, false, s.First(false, "node")},
	} {
		if got := IsAck(test.delta, test.request); got != test.ack {
			t.Errorf("IsAck(delta=%v, %q) = %v", test.delta, test.request, got)
		}
	}
}

func TestElements(t *testing.T) {
	c, _ := bodies(t)
	var d discovery.DeltaDiscoveryResponse
	decode(t, append(Head(true, "v", "T", "n"), Element(true, "c", "v1", c.TypeUrl, c.Value)...), &d)
	same(t, &d, &discovery.DeltaDiscoveryResponse{TypeUrl: "T", Nonce: "n", Resources: []*discovery.Resource{{Name: "c", Version: "v1", Resource: c}}})
	var s discovery.DiscoveryResponse
	decode(t, append(Head(false, "v", "T", "n"), Element(false, "c", "v1", c.TypeUrl, c.Value)...), &s)
	same(t, &s, &discovery.DiscoveryResponse{VersionInfo: "v", TypeUrl: "T", Nonce: "n", Resources: []*anypb.Any{c}})
}

func decode(t *testing.T, wire []byte, m proto.Message) {
	t.Helper()
	if err := proto.Unmarshal(wire, m); err != nil {
		t.Fatal(err)
	}
}

func same(t *testing.T, got, want proto.Message) {
	t.Helper()
	if !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
