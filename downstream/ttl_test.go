package downstream

import (
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xds-relay/xds-relay/cache"
)

// TestFrameWithTTL: what is left of a TTL stands behind the shared bytes, in Delta
// and within SotW's wrapper; a heartbeat has no body (TTL-4, TTL-5, TTL-6).
func TestFrameWithTTL(t *testing.T) {
	now := time.Unix(1, 0)
	resource := func(name string) (*cache.Resource, *discovery.Resource) {
		in := &discovery.Resource{Name: name, Aliases: []string{"x"}, Resource: &anypb.Any{TypeUrl: string(cache.Endpoint), Value: make([]byte, 300)}}
		r := cache.NewResource(cache.Endpoint, in, cache.Fingerprint{})
		in.Version = r.Version
		return r, in
	}
	whole, wantWhole := resource("whole")
	beat, wantBeat := resource("beat")
	bare, wantBare := resource("bare")
	wantBeat.Resource, wantBeat.Aliases = nil, nil
	for _, tt := range []struct {
		left, want time.Duration
	}{
		{90 * time.Second, 90 * time.Second},
		{1500 * time.Millisecond, 1500 * time.Millisecond},
		{time.Nanosecond, time.Millisecond},
		{-time.Second, time.Millisecond}, // it expired on the way, and is about to be removed
		{1<<63 - 1, 1<<63 - 1},
	} {
		r := &Response{
			Delta: true, Type: cache.Endpoint, Resources: []*cache.Resource{whole, bare}, Heartbeats: []*cache.Resource{beat},
			Ends: map[*cache.Resource]time.Time{whole: now.Add(tt.left), beat: now.Add(tt.left)}, At: now,
		}
		wantWhole.Ttl, wantBeat.Ttl = durationpb.New(tt.want), durationpb.New(tt.want)
		var delta discovery.DeltaDiscoveryResponse
		if err := proto.Unmarshal(Marshal(r), &delta); err != nil {
			t.Fatal(err)
		}
		want := []*discovery.Resource{wantWhole, wantBare, wantBeat}
		for i, got := range delta.GetResources() {
			if !proto.Equal(got, want[i]) {
				t.Errorf("%v: Delta: got  %v\nwant %v", tt.left, got, want[i])
			}
		}

		r.Delta = false
		var sotw discovery.DiscoveryResponse
		if err := proto.Unmarshal(Marshal(r), &sotw); err != nil {
			t.Fatal(err)
		}
		for i, got := range sotw.GetResources() {
			if i == 1 {
				if !proto.Equal(got, wantBare.GetResource()) {
					t.Errorf("SotW: a resource without a TTL is wrapped: %v", got)
				}
				continue
			}
			unwrapped := new(discovery.Resource)
			if err := got.UnmarshalTo(unwrapped); err != nil || !proto.Equal(unwrapped, want[i]) {
				t.Errorf("%v: SotW: got  %v (%v)\nwant %v", tt.left, unwrapped, err, want[i])
			}
		}
		for _, delta := range []bool{true, false} {
			r.Delta = delta
			bound := len(r.Head()) + sizeOf(fieldResources, len(beat.Heading())+maxTTL) + 200
			for _, res := range r.Resources {
				bound += r.sizeOf(res)
			}
			if f := encode(r); f.size != len(Marshal(r)) || f.size > bound {
				t.Errorf("a frame of %d bytes says it has %d, and %d at most", len(Marshal(r)), f.size, bound)
			}
		}
	}
	if frames := encode(&Response{Delta: true, Resources: []*cache.Resource{whole}, Ends: map[*cache.Resource]time.Time{whole: now}}); &frames.bufs[2].ReadOnlyData()[0] != &whole.Content()[0] {
		t.Error("a resource with a TTL was copied (VALID-7)")
	}
}

// TestFeatures: sources disagree on the spelling; all are accepted (TTL-6).
func TestFeatures(t *testing.T) {
	for _, tt := range []struct {
		features    []string
		delta, sotw bool
	}{
		{nil, false, false},
		{[]string{"xds.config.supports-resource-ttl"}, true, false},
		{[]string{"envoy.config.supports-resource-ttl"}, true, false},
		{[]string{"xds.config.resource-in-sotw"}, false, false},
		{[]string{"xds.config.supports-resource-ttl", "xds.config.resource-in-sotw"}, true, true},
		{[]string{"xds.config.supports-resource-in-sotw", "xds.config.supports-resource-ttl"}, true, true},
		{[]string{"envoy.config.supports-resource-ttl", "envoy.config.resource-in-sotw"}, true, true},
		{[]string{"envoy.config.supports-resource-ttl", "envoy.config.supports-resource-in-sotw"}, true, true},
		{[]string{"supports-resource-ttl"}, false, false},
	} {
		node := &core.Node{ClientFeatures: tt.features}
		if delta, sotw := takesTTL(node, true), takesTTL(node, false); delta != tt.delta || sotw != tt.sotw {
			t.Errorf("%q: Delta %v, SotW %v; want %v, %v", tt.features, delta, sotw, tt.delta, tt.sotw)
		}
	}
}
