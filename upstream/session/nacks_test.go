package session

import (
	"fmt"
	"slices"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
)

// TestNacksAreRemembered: until the control plane says something else of the resource, and at most so many.
func TestNacksAreRemembered(t *testing.T) {
	var n nacks
	at := time.Unix(1, 0)
	faulty := func(names ...string) *Response {
		d := &Response{TypeURL: cache.Cluster}
		d.malformed(names...)
		d.fault("they are not sound")
		return d
	}
	take := func(d *Response) {
		at = at.Add(time.Second)
		n.take(d, d.nack(), at)
	}
	is := func(want ...string) {
		t.Helper()
		var got []string
		for _, one := range n.list {
			got = append(got, one.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("they are %q, want %q", got, want)
		}
	}
	sound := func(t cache.TypeURL, name string) *Response {
		return &Response{TypeURL: t, Update: cache.Update{Set: []cache.Received{{Resource: cache.NewResource(t, &discovery.Resource{Name: name}, cache.Fingerprint{})}}}}
	}
	take(faulty("a", "b", "c"))
	is("a", "b", "c")
	if one := n.list[0]; one.Type != cache.Cluster || one.Details != "xds-relay: they are not sound" || !one.At.Equal(at) {
		t.Errorf("it is %+v", one)
	}
	take(faulty("b"))
	is("a", "c", "b")
	take(sound(cache.Cluster, "a"))
	is("c", "b")
	take(sound(cache.Endpoint, "b"))
	is("c", "b")
	take(&Response{TypeURL: cache.Cluster, Update: cache.Update{Removed: []string{"c"}}})
	is("b")
	take(&Response{TypeURL: cache.Cluster, Update: cache.Update{Full: true}})
	is()
	for i := range 2 * maxNacks {
		take(faulty(fmt.Sprint(i)))
	}
	if len(n.list) != maxNacks || n.list[maxNacks-1].Name != fmt.Sprint(2*maxNacks-1) {
		t.Errorf("there are %d", len(n.list))
	}
}
