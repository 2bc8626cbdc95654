package session

import (
	"fmt"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// TestRemovalsOfAGlobAreNotLost: a client that does not acknowledge while more members leave a glob than are remembered is
// told of each that it has, and of no other (NAME-12).
func TestRemovalsOfAGlobAreNotLost(t *testing.T) {
	const members, rounds = 100, 5
	hub := fanout.NewHub(fanout.Config{})
	lane := fanout.Lane{Type: cache.Endpoint}
	keeps := comes(t, hub, cache.Endpoint, nil, []string{glob})
	defer keeps.Close(epoch)
	all := func(version int) (u *cache.Update) {
		u = &cache.Update{}
		for i := range members {
			u.Set = append(u.Set, cache.Received{Resource: cache.NewResource(cache.Endpoint, &discovery.Resource{
				Name: inGlob(fmt.Sprint(i)), Resource: &anypb.Any{TypeUrl: string(cache.Endpoint), Value: fmt.Append(nil, version)},
			}, cache.Fingerprint{})})
		}
		return u
	}
	hub.Apply(lane, all(0))
	s := comes(t, hub, cache.Endpoint, nil, []string{glob})
	first, _ := s.Next(epoch)
	if len(first.Resources) != members {
		t.Fatalf("%d members", len(first.Resources))
	}
	for round := range rounds {
		u := &cache.Update{}
		for i := range members {
			u.Removed = append(u.Removed, inGlob(fmt.Sprint(i)))
		}
		hub.Apply(lane, u)
		if round < rounds-1 {
			hub.Apply(lane, all(round+1))
		}
	}
	hub.Apply(lane, &cache.Update{Set: all(9).Set[:1]})
	answer(t, s, first)
	gone, come := make(map[string]bool), 0
	for r, _ := s.Next(epoch); r != nil; r, _ = s.Next(epoch) {
		for _, name := range r.Removed {
			gone[name] = true
		}
		come += len(r.Resources)
		answer(t, s, r)
	}
	if len(gone) != members-1 || gone[inGlob("0")] || come != 1 {
		t.Errorf("%d members are removed, and %d come", len(gone), come)
	}
	s.find(cache.Endpoint).base().sub.Read(func(v fanout.View) {
		id, _ := v.Lookup(glob)
		for range news(v, id) {
			t.Error("of a client that is up to date members are looked at once more")
		}
	})
}
