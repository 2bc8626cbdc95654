package cache

import (
	"bytes"
	"strings"
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
)

// unknownField is a field that no version of the message has.
func unknownField() []byte {
	b := protowire.AppendTag(nil, 1000, protowire.BytesType)
	return protowire.AppendString(b, "from the future")
}

// received is a resource as upstream may send it, with everything set.
func received() *discovery.Resource {
	r := &discovery.Resource{
		Name: "a", Version: "u1", Aliases: []string{"y", "x"},
		// Not a protobuf message: the relay must not care (VALID-1).
		Resource:     &anypb.Any{TypeUrl: "type.googleapis.com/test.T", Value: []byte{0xff, 0x00, 0x17}},
		CacheControl: &discovery.Resource_CacheControl{DoNotCache: true},
		Metadata: &core.Metadata{FilterMetadata: map[string]*structpb.Struct{
			"k": {Fields: map[string]*structpb.Value{"v": structpb.NewNumberValue(1)}},
		}},
	}
	r.ProtoReflect().SetUnknown(unknownField())
	return r
}

// TestResourceLeavesAsItCame: all of a resource but its version travels unchanged
// (VALID-2, VALID-3, VALID-4), and a TTL is left out.
func TestResourceLeavesAsItCame(t *testing.T) {
	in := received()
	in.Ttl = durationpb.New(1)
	r := NewResource("type.googleapis.com/test.T", in, Fingerprint{})

	var delta discovery.DeltaDiscoveryResponse
	if err := proto.Unmarshal(r.Element(), &delta); err != nil {
		t.Fatal(err)
	}
	want := received()
	want.Version = r.Version
	if len(delta.GetResources()) != 1 || !proto.Equal(delta.GetResources()[0], want) {
		t.Errorf("Delta: got %v, want %v", delta.GetResources(), want)
	}

	var sotw discovery.DiscoveryResponse
	if err := proto.Unmarshal(r.Body(), &sotw); err != nil {
		t.Fatal(err)
	}
	if len(sotw.GetResources()) != 1 || !bytes.Equal(sotw.GetResources()[0].GetValue(), in.GetResource().GetValue()) {
		t.Errorf("SotW: got %v, want the body of %v", sotw.GetResources(), in)
	}
}

// TestQualifiedNameKeepsItsForm: a name that came in resource_name leaves in it
// (NAME-2).
func TestQualifiedNameKeepsItsForm(t *testing.T) {
	in := received()
	in.Name, in.ResourceName = "", &discovery.ResourceName{Name: "a"}
	r := NewResource("type.googleapis.com/test.T", in, Fingerprint{})
	var delta discovery.DeltaDiscoveryResponse
	if err := proto.Unmarshal(r.Element(), &delta); err != nil {
		t.Fatal(err)
	}
	if out := delta.GetResources()[0]; r.Name != "a" || out.GetName() != "" || out.GetResourceName().GetName() != "a" {
		t.Errorf("got name %q, sent %v", r.Name, out)
	}
	for _, bad := range []*discovery.Resource{{}, {Name: "a", ResourceName: &discovery.ResourceName{Name: "a"}}} {
		if name, ok := NameOf(bad); ok {
			t.Errorf("NameOf(%v) = %q, want it refused", bad, name)
		}
	}
}

// TestFingerprint pins the recipe: it must never change without its tag
// (RECON-1, RECON-3).
func TestFingerprint(t *testing.T) {
	const url = "type.googleapis.com/test.T"
	plain := Fingerprint{}.Of(url, []byte("body"), []string{"b", "a"})
	if want := "1:faef9e3447cdd14067cbd8943f18222f"; plain != want {
		t.Errorf("the recipe changed: %q, was %q", plain, want)
	}
	if other := (Fingerprint{}).Of(url, []byte("body"), []string{"a", "b"}); other != plain {
		t.Errorf("the order of aliases counts: %q and %q", plain, other)
	}
	different := map[string]bool{plain: true}
	for _, f := range []string{
		Fingerprint{}.Of(url, []byte("body"), []string{"a"}),
		Fingerprint{}.Of(url, []byte("bodya"), []string{"b"}),
		Fingerprint{}.Of(url+"b", []byte("ody"), []string{"a", "b"}),
		Fingerprint{}.Of(string(Secret), []byte("body"), nil),
		Fingerprint{SecretKey: []byte("k")}.Of(string(Secret), []byte("body"), nil),
		Fingerprint{SecretKey: []byte("l")}.Of(string(Secret), []byte("body"), nil),
	} {
		if different[f] || !strings.HasPrefix(f, "1:") {
			t.Errorf("fingerprint %q is not new, or lacks its tag", f)
		}
		different[f] = true
	}
	keyed := Fingerprint{SecretKey: []byte("k")}
	if keyed.Of(url, []byte("body"), []string{"a", "b"}) != plain {
		t.Error("the key counts for more than Secrets")
	}
}

// TestDigest: order plays no part, and what was added can be taken away
// (RECON-14).
func TestDigest(t *testing.T) {
	var rs []*Resource
	for _, name := range []string{"a", "b", "c"} {
		in := received()
		in.Name = name
		rs = append(rs, NewResource("T", in, Fingerprint{}))
	}
	var forth, back, less Digest
	for i := range rs {
		forth.Add(rs[i])
		back.Add(rs[len(rs)-1-i])
	}
	if forth.String() != back.String() || !strings.HasPrefix(forth.String(), "1:3:") {
		t.Errorf("got %s and %s", forth, back)
	}
	forth.Sub(rs[1])
	less.Add(rs[0])
	less.Add(rs[2])
	if forth.String() != less.String() {
		t.Errorf("got %s, want %s", forth, less)
	}
	if (Digest{}).String() == "" {
		t.Error("the empty set has no version (DOWN-SOTW-11)")
	}
}

// TestEndpointName reads clusters leniently (ORDER-6).
func TestEndpointName(t *testing.T) {
	eds := &cluster.Cluster_Type{Type: cluster.Cluster_EDS}
	enc := func(c *cluster.Cluster) []byte {
		b, err := proto.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	service := enc(&cluster.Cluster{Name: "c", ClusterDiscoveryType: eds, EdsClusterConfig: &cluster.Cluster_EdsClusterConfig{ServiceName: "s"}})
	for _, tt := range []struct {
		what string
		body []byte
		want string
	}{
		{"static", enc(&cluster.Cluster{Name: "c"}), ""},
		{"eds by its own name", enc(&cluster.Cluster{Name: "c", ClusterDiscoveryType: eds}), "c"},
		{"eds by service name", service, "s"},
		{"cut off behind its name", service[:4], "c"},
		{"no message", []byte{0xff}, ""},
		{"nothing", nil, ""},
	} {
		if got := endpointName(tt.body); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.what, got, tt.want)
		}
	}
	for n := range service {
		endpointName(service[:n]) // must not panic
	}
}
