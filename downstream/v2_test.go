package downstream

import (
	"testing"

	v2 "github.com/envoyproxy/go-control-plane/envoy/api/v2"
	corev2 "github.com/envoyproxy/go-control-plane/envoy/api/v2/core"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
)

// nodeOfV2 has all that a node of v2 may have, and v3 has not.
func nodeOfV2() *corev2.Node {
	return &corev2.Node{
		Id: "n", Cluster: "c", Locality: &corev2.Locality{Region: "r", Zone: "z", SubZone: "s"},
		BuildVersion:  "1.14/Clean/RELEASE", //nolint:staticcheck // clients of v2 still say it
		Metadata:      &structpb.Struct{Fields: map[string]*structpb.Value{"k": structpb.NewStringValue("v")}},
		UserAgentName: "envoy", ClientFeatures: []string{"envoy.config.supports-resource-ttl"},
		UserAgentVersionType: &corev2.Node_UserAgentVersion{UserAgentVersion: "1.14"},
		Extensions:           []*corev2.Extension{{Name: "x", Category: "filter"}},
		ListeningAddresses:   []*corev2.Address{{Address: &corev2.Address_Pipe{Pipe: &corev2.Pipe{Path: "/p", Mode: 0o600}}}},
	}
}

// TestRequestsOfV2: each field of a v2 request is read as the current one of its name, and its node leaves as it came
// (V2-1).
func TestRequestsOfV2(t *testing.T) {
	const typ = "type.googleapis.com/envoy.api.v2.Cluster"
	take := func(in *inbox, m proto.Message) {
		t.Helper()
		raw, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		in.limit, in.v2 = 1<<20, true
		if err := in.unmarshal(mem.BufferSlice{mem.SliceBuffer(raw)}, newCodec().CodecV2); err != nil || in.refused != nil || in.request == nil {
			t.Fatalf("%v: %v, refused %v", m, err, in.refused)
		}
	}
	checkNode := func(node *core.Node) {
		t.Helper()
		raw, err := proto.Marshal(node)
		if err != nil {
			t.Fatal(err)
		}
		var back corev2.Node
		if err := proto.Unmarshal(raw, &back); err != nil || !proto.Equal(&back, nodeOfV2()) {
			t.Errorf("the node leaves as %v (%v)", &back, err)
		}
		if node.GetId() != "n" || node.GetUserAgentName() != "envoy" || node.GetLocality().GetZone() != "z" {
			t.Errorf("the node is read as %v", node)
		}
	}
	var in inbox
	take(&in, &v2.DiscoveryRequest{VersionInfo: "1", Node: nodeOfV2(), ResourceNames: []string{"a"}, TypeUrl: typ, ResponseNonce: "n", ErrorDetail: &statuspb.Status{Code: 3, Message: "no"}})
	sotw, _ := in.sotw()
	checkNode(sotw.GetNode())
	if sotw.Node = nil; !proto.Equal(sotw, &discovery.DiscoveryRequest{VersionInfo: "1", ResourceNames: []string{"a"}, TypeUrl: typ, ResponseNonce: "n", ErrorDetail: &statuspb.Status{Code: 3, Message: "no"}}) {
		t.Errorf("SotW: %v", sotw)
	}
	in = inbox{delta: true}
	take(&in, &v2.DeltaDiscoveryRequest{
		Node: nodeOfV2(), TypeUrl: typ, ResourceNamesSubscribe: []string{"a"}, ResourceNamesUnsubscribe: []string{"b"},
		InitialResourceVersions: map[string]string{"c": "1"}, ResponseNonce: "n", ErrorDetail: &statuspb.Status{Code: 3},
	})
	delta := in.request.(*discovery.DeltaDiscoveryRequest)
	checkNode(delta.GetNode())
	if delta.Node = nil; !proto.Equal(delta, &discovery.DeltaDiscoveryRequest{
		TypeUrl: typ, ResourceNamesSubscribe: []string{"a"}, ResourceNamesUnsubscribe: []string{"b"},
		InitialResourceVersions: map[string]string{"c": "1"}, ResponseNonce: "n", ErrorDetail: &statuspb.Status{Code: 3},
	}) {
		t.Errorf("Delta: %v", delta)
	}
}

// TestResponsesForV2: a v2 client reads all of a response; what it does not know is control_plane, in Delta.
func TestResponsesForV2(t *testing.T) {
	const typ = "type.googleapis.com/envoy.api.v2.Cluster"
	body := &anypb.Any{TypeUrl: typ, Value: []byte{0x0a, 1, 'a'}}
	res := cache.NewResource(typ, &discovery.Resource{Name: "a", Aliases: []string{"x"}, Resource: body}, cache.Fingerprint{})
	r := &session.Response{Delta: true, Type: typ, Nonce: "n-0", Version: "v", Resources: []*cache.Resource{res}, Removed: []string{"b"}}
	var delta v2.DeltaDiscoveryResponse
	if err := proto.Unmarshal(Marshal(r), &delta); err != nil || !proto.Equal(&delta, &v2.DeltaDiscoveryResponse{
		SystemVersionInfo: "v", TypeUrl: typ, Nonce: "n-0", RemovedResources: []string{"b"},
		Resources: []*v2.Resource{{Name: "a", Version: res.Version, Aliases: []string{"x"}, Resource: body}},
	}) {
		t.Errorf("Delta: %v, %v", &delta, err)
	}
	r.Delta, r.Removed, r.Identifier = false, nil, "xds-relay/1"
	var sotw v2.DiscoveryResponse
	if err := proto.Unmarshal(Marshal(r), &sotw); err != nil || !proto.Equal(&sotw, &v2.DiscoveryResponse{
		VersionInfo: "v", TypeUrl: typ, Nonce: "n-0", Resources: []*anypb.Any{body}, ControlPlane: &corev2.ControlPlane{Identifier: "xds-relay/1"},
	}) {
		t.Errorf("SotW: %v, %v", &sotw, err)
	}
}

// FuzzV2Requests: whatever bytes come on the v2 transport, they are an error, a refusal or a request without locators, in
// which all that a v2 server would read of them stands the same.
func FuzzV2Requests(f *testing.F) {
	for _, m := range []proto.Message{
		&v2.DiscoveryRequest{VersionInfo: "1", Node: nodeOfV2(), ResourceNames: []string{"a"}, TypeUrl: "t", ResponseNonce: "n"},
		&v2.DeltaDiscoveryRequest{Node: nodeOfV2(), TypeUrl: "t", ResourceNamesSubscribe: []string{"a"}, InitialResourceVersions: map[string]string{"c": "1"}},
		&discovery.DiscoveryRequest{TypeUrl: "t", ResourceLocators: []*discovery.ResourceLocator{{Name: "a"}}},
		&discovery.DeltaDiscoveryRequest{TypeUrl: "t", ResourceLocatorsUnsubscribe: []*discovery.ResourceLocator{{Name: "a"}}},
		&discovery.DeltaDiscoveryRequest{TypeUrl: "t", ResponseNonce: "n"},
	} {
		raw, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, true)
		f.Add(raw, false)
	}
	f.Fuzz(func(t *testing.T, raw []byte, delta bool) {
		in := &inbox{delta: delta, v2: true, limit: 1 << 20}
		if err := in.unmarshal(mem.BufferSlice{mem.SliceBuffer(raw)}, newCodec().CodecV2); err != nil || in.refused != nil {
			return
		}
		request := in.request
		if request == nil {
			var end *session.End
			if request, end = in.bare.Message(delta); end != nil {
				return
			}
		}
		if end := foreignToV2(request); end != nil {
			t.Errorf("what was taken in is refused: %v", end)
		}
		if delta {
			checkDelta(t, raw, request.(*discovery.DeltaDiscoveryRequest))
		} else {
			checkSotW(t, raw, request.(*discovery.DiscoveryRequest))
		}
	})
}

func checkDelta(t *testing.T, raw []byte, got *discovery.DeltaDiscoveryRequest) {
	var want v2.DeltaDiscoveryRequest
	if err := proto.Unmarshal(raw, &want); err != nil {
		return // it may be no node of v2
	}
	same := &discovery.DeltaDiscoveryRequest{
		Node: got.GetNode(), TypeUrl: want.GetTypeUrl(), ResourceNamesSubscribe: want.GetResourceNamesSubscribe(), ResourceNamesUnsubscribe: want.GetResourceNamesUnsubscribe(),
		InitialResourceVersions: want.GetInitialResourceVersions(), ResponseNonce: want.GetResponseNonce(), ErrorDetail: want.GetErrorDetail(),
	}
	if got = proto.CloneOf(got); !equal(got, same) || got.GetNode().GetId() != want.GetNode().GetId() {
		t.Errorf("%x is read as %v, want %v", raw, got, same)
	}
}

func checkSotW(t *testing.T, raw []byte, got *discovery.DiscoveryRequest) {
	var want v2.DiscoveryRequest
	if err := proto.Unmarshal(raw, &want); err != nil {
		return
	}
	same := &discovery.DiscoveryRequest{
		VersionInfo: want.GetVersionInfo(), Node: got.GetNode(), ResourceNames: want.GetResourceNames(), TypeUrl: want.GetTypeUrl(),
		ResponseNonce: want.GetResponseNonce(), ErrorDetail: want.GetErrorDetail(),
	}
	if got = proto.CloneOf(got); !equal(got, same) || got.GetNode().GetId() != want.GetNode().GetId() {
		t.Errorf("%x is read as %v, want %v", raw, got, same)
	}
}

// equal compares requests without their unknown fields.
func equal(got, want proto.Message) bool {
	got.ProtoReflect().SetUnknown(nil)
	return proto.Equal(got, want)
}
