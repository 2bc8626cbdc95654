package session

import (
	"slices"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
)

// TestDecodeSotW: names come from wrappers or bodies, faults keep their own names out
// and let the rest in, and what is per hop goes no further (TRANSLATE-2, -3, -13,
// ERR-10, ERR-11).
func TestDecodeSotW(t *testing.T) {
	const url = "type.googleapis.com/test.T"
	bare := func(name, label string) *anypb.Any {
		b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), name)
		return &anypb.Any{TypeUrl: url, Value: protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), label)}
	}
	wrap := func(r *discovery.Resource) *anypb.Any {
		a, err := anypb.New(r)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	foreign := bare("bad", "1")
	foreign.TypeUrl = "type.googleapis.com/test.Other"
	for _, tt := range []struct {
		what      string
		resources []*anypb.Any
		fault     string
		set, kept string
		nameless  bool
	}{
		{"sound", []*anypb.Any{bare("a", "1"), wrap(&discovery.Resource{Name: "w", Resource: bare("inside", "1")})}, "", "a w", "", false},
		{"no name", []*anypb.Any{bare("a", "1"), {TypeUrl: url, Value: []byte{0x10, 0x01}}}, "resource 1 has no name", "a", "", true},
		{"a redirect without a wrapper", []*anypb.Any{{TypeUrl: redirect, Value: []byte{0x08, 0x01}}}, "resource 0 has no name", "", "", true},
		{"a redirect in one", []*anypb.Any{wrap(&discovery.Resource{Name: "w", Resource: &anypb.Any{TypeUrl: redirect}})}, "", "w", "", false},
		{"a wrapper without a name", []*anypb.Any{wrap(&discovery.Resource{Resource: bare("inside", "1")}), bare("a", "1")}, "resource 0 has no name", "a", "", true},
		{"a wrapper with two", []*anypb.Any{wrap(&discovery.Resource{Name: "x", ResourceName: &discovery.ResourceName{Name: "y"}})}, "both name and resource_name", "", "x y", false},
		{"a broken wrapper", []*anypb.Any{{TypeUrl: wrapped, Value: []byte{0xff}}, bare("a", "1")}, "resource 0 has a wrapper that cannot be read", "a", "", true},
		{"another type", []*anypb.Any{foreign, bare("a", "1")}, `"bad" has type`, "a", "bad", false},
		{"twice alike", []*anypb.Any{bare("a", "1"), bare("a", "1")}, `"a" is listed twice`, "a", "", false},
		{"twice, different", []*anypb.Any{bare("bad", "1"), bare("a", "1"), bare("bad", "2")}, "different content", "a", "bad", false},
		{"no body", []*anypb.Any{wrap(&discovery.Resource{Name: "w"}), bare("a", "1")}, "", "a", "", false}, // which of three things it is, Core knows
	} {
		t.Run(tt.what, func(t *testing.T) {
			d := Decode(&discovery.DiscoveryResponse{TypeUrl: url, VersionInfo: "7", Canary: true, Resources: tt.resources}, cache.Fingerprint{})
			var set []string
			for _, r := range d.Update.Set {
				set = append(set, r.Name)
				if r.Upstream != "7" || !strings.HasPrefix(r.Version, "1:") {
					t.Errorf("%s has version %q and upstream %q, want a fingerprint and the response's", r.Name, r.Version, r.Upstream)
				}
			}
			slices.Sort(d.Update.Kept)
			if got := strings.Join(set, " "); got != tt.set || strings.Join(d.Update.Kept, " ") != tt.kept || d.Update.Unreadable != tt.nameless {
				t.Errorf("set %q, kept %q, nameless %v; want %q, %q, %v", got, d.Update.Kept, d.Update.Unreadable, tt.set, tt.kept, tt.nameless)
			}
			if nack := d.nack(); !strings.Contains(nack, tt.fault) || (nack == "") != (tt.fault == "") {
				t.Errorf("NACK %q, want it to say %q", nack, tt.fault)
			}
		})
	}
}
