package downstream

import (
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
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
		r := &session.Response{
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
			if f := encode(r); f.size != len(Marshal(r)) {
				t.Errorf("a frame of %d bytes says it has %d", len(Marshal(r)), f.size)
			}
		}
	}
	if frames := encode(&session.Response{Delta: true, Resources: []*cache.Resource{whole}, Ends: map[*cache.Resource]time.Time{whole: now}}); &frames.bufs[2].ReadOnlyData()[0] != &whole.Content()[0] {
		t.Error("a resource with a TTL was copied (VALID-7)")
	}
}
