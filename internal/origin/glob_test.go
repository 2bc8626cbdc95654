package origin

import (
	"iter"
	"slices"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
)

// TestCovered: what a glob covers stands in its place, once, wherever it is; a glob that covers nothing stays.
func TestCovered(t *testing.T) {
	const x, y = "xdstp://a/t/x/", "xdstp://a/t/y/"
	of := func(names ...string) iter.Seq[*cache.Resource] {
		var all []*cache.Resource
		for _, name := range names {
			r := &discovery.Resource{Name: name, Resource: &anypb.Any{TypeUrl: string(cache.Cluster)}}
			all = append(all, cache.NewResource(cache.Cluster, r, cache.Fingerprint{}))
		}
		return slices.Values(all)
	}
	for name, c := range map[string]struct {
		names []string
		among []iter.Seq[*cache.Resource]
		want  []string
	}{
		"nothing":              {nil, []iter.Seq[*cache.Resource]{of(x + "1")}, nil},
		"plain names":          {[]string{"b", "a", "plain/*"}, []iter.Seq[*cache.Resource]{of("plain/1")}, []string{"b", "a", "plain/*"}},
		"members":              {[]string{x + "*"}, []iter.Seq[*cache.Resource]{of(x+"2", x+"1", y+"1", x+"deep/1", "plain")}, []string{x + "1", x + "2"}},
		"empty":                {[]string{x + "*"}, []iter.Seq[*cache.Resource]{of(y + "1")}, []string{x + "*"}},
		"two globs":            {[]string{y + "*", x + "*"}, []iter.Seq[*cache.Resource]{of(y+"1", x+"1")}, []string{x + "1", y + "1"}},
		"a member, too":        {[]string{x + "1", x + "*", "z"}, []iter.Seq[*cache.Resource]{of(x+"1", x+"2")}, []string{x + "1", x + "2", "z"}},
		"in two places":        {[]string{x + "*"}, []iter.Seq[*cache.Resource]{of(x+"1", x+"2"), of(x+"2", x+"3")}, []string{x + "1", x + "2", x + "3"}},
		"only in the second":   {[]string{x + "*"}, []iter.Seq[*cache.Resource]{of(), of(x + "1")}, []string{x + "1"}},
		"with parameters":      {[]string{x + "*?a=1&b=2"}, []iter.Seq[*cache.Resource]{of(x+"1?b=2&a=1", x+"1", x+"1?a=1")}, []string{x + "1?a=1&b=2"}},
		"an explicit absentee": {[]string{x + "9", x + "*"}, []iter.Seq[*cache.Resource]{of(x + "1")}, []string{x + "1", x + "9"}},
	} {
		if got := Covered(c.names, c.among...); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q become %q, not %q", name, c.names, got, c.want)
		}
	}
}
