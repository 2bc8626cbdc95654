package cache

import (
	"slices"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// TestNamesAreReadFromBodies: the last occurrence of the name field, from a body that
// is sound as far as its top level goes (TRANSLATE-2, TRANSLATE-3).
func TestNamesAreReadFromBodies(t *testing.T) {
	named := func(name string, more ...byte) []byte {
		b := protowire.AppendTag(nil, 1, protowire.BytesType)
		return append(protowire.AppendString(b, name), more...)
	}
	sound, err := proto.Marshal(&cluster.Cluster{AltStatName: "s", Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		what string
		url  TypeURL
		body []byte
		name string
		ok   bool
	}{
		{"a real message", Cluster, sound, "a", true},
		{"a type nobody knows", "strange", named("x"), "x", true},
		{"the last one counts", Endpoint, named("x", named("y")...), "y", true},
		{"the last one is empty", Endpoint, named("x", named("")...), "", false},
		{"another kind of field 1", "strange", []byte{0x08, 0x01}, "", false},
		{"field 1 of two kinds", "strange", named("x", 0x08, 0x01), "x", true},
		{"no field", Cluster, nil, "", false},
		{"not UTF-8", Cluster, named("\xff"), "", false},
		{"cut off behind the name", Cluster, named("x", 0x12, 0x05, 'a'), "", false},
		{"not a message", Cluster, []byte{0xff, 0xff}, "", false},
		{"a type that holds no name", VirtualHost, named("x"), "", false},
		{"another one", LocalityHost, named("x"), "", false},
	} {
		if name, ok := BodyName(tt.url, tt.body); name != tt.name && ok || ok != tt.ok {
			t.Errorf("%s: %q %v, want %q %v", tt.what, name, ok, tt.name, tt.ok)
		}
	}
}

// TestWhatGoesStaleIsReadFromBodies: endpoint_stale_after counts if it is set, in a body that is
// sound as far as it has to be read (TTL-13).
func TestWhatGoesStaleIsReadFromBodies(t *testing.T) {
	assignment := func(p *endpoint.ClusterLoadAssignment_Policy) []byte {
		b, err := proto.Marshal(&endpoint.ClusterLoadAssignment{ClusterName: "a", Endpoints: []*endpoint.LocalityLbEndpoints{{Priority: 1}}, Policy: p})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	set := assignment(&endpoint.ClusterLoadAssignment_Policy{EndpointStaleAfter: durationpb.New(time.Minute)})
	other := assignment(&endpoint.ClusterLoadAssignment_Policy{OverprovisioningFactor: wrapperspb.UInt32(140)})
	for _, tt := range []struct {
		what string
		url  TypeURL
		body []byte
		want bool
	}{
		{"set", Endpoint, set, true},
		{"set to nothing", Endpoint, assignment(&endpoint.ClusterLoadAssignment_Policy{EndpointStaleAfter: &durationpb.Duration{}}), true},
		{"a policy that does not set it", Endpoint, other, false},
		{"no policy", Endpoint, assignment(nil), false},
		{"in the first of two policies", Endpoint, slices.Concat(set, other), true},
		{"in the second of two policies", Endpoint, slices.Concat(other, set), true},
		{"another type", Cluster, set, false},
		{"another kind of field", Endpoint, []byte{0x22, 2, 0x20, 1}, false},
		{"a policy that is no message", Endpoint, append(slices.Clone(set), 0x22, 1, 0xff), false},
		{"cut off behind it", Endpoint, append(slices.Clone(set), 0x12, 5), false},
		{"no message", Endpoint, []byte{0xff, 0xff}, false},
	} {
		in := &discovery.Resource{Name: "a", Resource: &anypb.Any{TypeUrl: string(tt.url), Value: tt.body}}
		if got := NewResource(tt.url, in, Fingerprint{}).GoesStale; got != tt.want {
			t.Errorf("%s: %v, want %v", tt.what, got, tt.want)
		}
	}
	if NewResource(Endpoint, &discovery.Resource{Name: "a"}, Fingerprint{}).GoesStale {
		t.Error("a resource without a body goes stale")
	}
}
