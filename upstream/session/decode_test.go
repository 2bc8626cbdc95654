package session

import (
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
)

// TestFaultsSpareTheRest: each structural fault is named, keeps its own resource
// out, and lets all others in (ERR-10, ERR-11).
func TestFaultsSpareTheRest(t *testing.T) {
	const url = "type.googleapis.com/test.T"
	res := func(name, body string) *discovery.Resource {
		return &discovery.Resource{Name: name, Resource: &anypb.Any{TypeUrl: url, Value: []byte(body)}}
	}
	both := res("bad", "1")
	both.ResourceName = &discovery.ResourceName{Name: "bad"}
	foreign := res("bad", "1")
	foreign.Resource.TypeUrl = "type.googleapis.com/test.Other"
	elsewhere := res("also", "1")
	elsewhere.Resource.TypeUrl = redirect

	for _, tt := range []struct {
		what      string
		resources []*discovery.Resource
		removed   []string
		fault     string
		kept      string
	}{
		{"sound", []*discovery.Resource{res("good", "1"), elsewhere}, []string{"gone"}, "", "good also -gone"},
		{"no name", []*discovery.Resource{res("", "1"), res("good", "1")}, nil, "resource 0 has no name", "good"},
		{"two names", []*discovery.Resource{both, res("good", "1")}, nil, "resource 0 has both name and resource_name", "good"},
		{"updated and removed", []*discovery.Resource{res("bad", "1"), res("good", "1")}, []string{"bad", "gone"}, `"bad" is both updated and removed`, "good -gone"},
		{"twice alike", []*discovery.Resource{res("twin", "1"), res("twin", "1")}, nil, `"twin" is listed twice`, "twin"},
		{"twice, different", []*discovery.Resource{res("bad", "1"), res("good", "1"), res("bad", "2")}, nil, `"bad" is listed twice with different content`, "good"},
		{"another type", []*discovery.Resource{foreign, res("good", "1")}, nil, `"bad" has type`, "good"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			d := Decode(&discovery.DeltaDiscoveryResponse{TypeUrl: url, Resources: tt.resources, RemovedResources: tt.removed}, cache.Fingerprint{})
			var kept []string
			for _, r := range d.Update.Set {
				kept = append(kept, r.Name)
			}
			for _, name := range d.Update.Removed {
				kept = append(kept, "-"+name)
			}
			if got := strings.Join(kept, " "); got != tt.kept {
				t.Errorf("kept %q, want %q", got, tt.kept)
			}
			if nack := d.nack(); !strings.Contains(nack, tt.fault) || (nack == "") != (tt.fault == "") {
				t.Errorf("NACK %q, want it to say %q", nack, tt.fault)
			}
		})
	}
}

// TestNackIsBounded: however much is wrong, the message stays small (NACK-7).
func TestNackIsBounded(t *testing.T) {
	resp := &discovery.DeltaDiscoveryResponse{TypeUrl: "T"}
	for range 10_000 {
		resp.Resources = append(resp.Resources, &discovery.Resource{Aliases: []string{"é"}})
	}
	if n := len(Decode(resp, cache.Fingerprint{}).nack()); n > maxNack || n < maxNack/2 {
		t.Errorf("the NACK has %d bytes, want at most %d and most of them used", n, maxNack)
	}
}
