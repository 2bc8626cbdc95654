package session

import (
	"fmt"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// A response of many names is listed by the first of them, and a response that all clients are
// sent is listed once.
func TestListing(t *testing.T) {
	var many []*cache.Resource
	for i := range 20 {
		many = append(many, cache.NewResource(cache.Cluster, &discovery.Resource{Name: fmt.Sprint("n", i), Resource: &anypb.Any{}}, cache.Fingerprint{}))
	}
	news := &fanout.News{Resources: many}
	for _, tt := range []struct {
		r     Response
		count int
		first string
	}{
		{Response{}, 0, "[]"},
		{Response{Resources: many[:1]}, 1, "[n0]"},
		{Response{Removed: []string{"gone"}}, 1, "[gone]"},
		{Response{Resources: many[:1], Removed: []string{"gone"}}, 2, "[n0 gone]"},
		{Response{Resources: many, News: news}, 20, "[n0 n1 n2 n3 n4 n5 n6 n7 n8 n9]"},
		{Response{Resources: many[5:8], News: news}, 3, "[n5 n6 n7]"},
	} {
		if l := tt.r.Listing(); l.Count != tt.count || fmt.Sprint(l.First) != tt.first {
			t.Errorf("%d %v, want %d %s", l.Count, l.First, tt.count, tt.first)
		}
	}
	r := Response{Resources: many, News: news}
	r.Listing()
	if n := testing.AllocsPerRun(100, func() { r.Listing() }); n != 0 {
		t.Errorf("%v allocations for what is shared", n)
	}
}
