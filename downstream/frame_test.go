package downstream

import (
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
)

// TestFrameIsTheMessage: a frame put together from shared parts decodes to the
// very message that it stands for.
func TestFrameIsTheMessage(t *testing.T) {
	body := &anypb.Any{TypeUrl: string(cache.Cluster), Value: []byte{1, 2, 3}}
	in := &discovery.Resource{Name: "a", Aliases: []string{"x"}, Resource: body}
	shared := cache.NewResource(cache.Cluster, in, cache.Fingerprint{})
	failed := &discovery.ResourceError{
		ResourceName: &discovery.ResourceName{Name: "e"}, ErrorDetail: &statuspb.Status{Code: 14, Message: "why"},
	}
	r := &session.Response{
		Delta: true, Type: cache.Cluster, Nonce: "CDS.1-0", Version: "v", Identifier: "xds-relay/r",
		Resources: []*cache.Resource{shared}, Removed: []string{"b", ""},
		Errors: []*discovery.ResourceError{failed},
	}
	plane := &core.ControlPlane{Identifier: "xds-relay/r"}

	var delta discovery.DeltaDiscoveryResponse
	if err := proto.Unmarshal(Marshal(r), &delta); err != nil {
		t.Fatal(err)
	}
	if want := (&discovery.DeltaDiscoveryResponse{
		SystemVersionInfo: "v", TypeUrl: string(cache.Cluster), Nonce: "CDS.1-0", ControlPlane: plane,
		Resources:        []*discovery.Resource{{Name: "a", Version: shared.Version, Aliases: []string{"x"}, Resource: body}},
		RemovedResources: []string{"b", ""},
		ResourceErrors:   []*discovery.ResourceError{failed},
	}); !proto.Equal(&delta, want) {
		t.Errorf("Delta: got  %v\nwant %v", &delta, want)
	}

	r.Delta, r.Removed = false, nil
	var sotw discovery.DiscoveryResponse
	if err := proto.Unmarshal(Marshal(r), &sotw); err != nil {
		t.Fatal(err)
	}
	if want := (&discovery.DiscoveryResponse{
		VersionInfo: "v", TypeUrl: string(cache.Cluster), Nonce: "CDS.1-0", ControlPlane: plane,
		Resources: []*anypb.Any{body}, ResourceErrors: []*discovery.ResourceError{failed},
	}); !proto.Equal(&sotw, want) {
		t.Errorf("SotW: got  %v\nwant %v", &sotw, want)
	}
	if f := encode(r); f.size != len(Marshal(r)) {
		t.Errorf("size %d, want %d", f.size, len(Marshal(r)))
	}
}

// TestBytesAreShared: two clients' frames refer to the same bytes (VALID-7).
func TestBytesAreShared(t *testing.T) {
	shared := cache.NewResource(cache.Cluster, &discovery.Resource{
		Name: "a", Resource: &anypb.Any{TypeUrl: string(cache.Cluster), Value: make([]byte, 1000)},
	}, cache.Fingerprint{})
	frames := [2]mem.BufferSlice{}
	for i := range frames {
		frames[i] = encode(&session.Response{Delta: true, Type: cache.Cluster, Resources: []*cache.Resource{shared}}).bufs
	}
	if &frames[0][1].ReadOnlyData()[0] != &frames[1][1].ReadOnlyData()[0] {
		t.Error("the resource was encoded twice")
	}
}
