package fanout

import (
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
)

// TestRenewalsAreBounded: a client that never looks costs its names, however often
// upstream renews them (H-12); one that knows no TTLs is not even woken (TTL-7).
func TestRenewalsAreBounded(t *testing.T) {
	h := newHub()
	wakes := map[bool]int{}
	subs := map[bool]*Subscription{}
	for _, knows := range []bool{true, false} {
		m := NewSubscriber(func() { wakes[knows]++ })
		if knows {
			m.TakesTTL = true
		}
		subs[knows] = h.Subscribe(typ, m)
		subs[knows].Delta([]string{"a", "b", Wildcard}, nil, epoch)
	}
	u := set("a", "b")
	for i := range u.Set {
		u.Set[i].TTL = time.Minute
	}
	h.Apply(byName, u)
	h.Apply(all, u)
	for knows, s := range subs {
		s.subscriber.Take()
		s.Read(func(v View) { v.Marks() })
		wakes[knows] = 0
	}
	for range 10_000 {
		for _, lane := range []Lane{byName, all} {
			h.Apply(lane, &cache.Update{At: epoch, Heartbeats: []cache.Heartbeat{{Name: "a", TTL: time.Minute}, {Name: "b", TTL: time.Minute}}})
		}
	}
	if n := cap(subs[true].marks.Renewed); n > 200 || !subs[true].marks.WildcardRenewed {
		t.Errorf("the mailbox of 2 names has grown to %d: %+v", n, subs[true].marks.WildcardRenewed)
	}
	if wakes[true] != 1 || wakes[false] != 0 || subs[false].dirty {
		t.Errorf("woken %v, marks of who knows no TTLs: %+v", wakes, subs[false].marks)
	}
}

// TestRepeatsAreBounded: the same of what clients drop unless it is sent again, which all of them are
// woken for (TTL-13).
func TestRepeatsAreBounded(t *testing.T) {
	h, wakes := newHub(), 0
	s := h.Subscribe(typ, NewSubscriber(func() { wakes++ }))
	s.Delta([]string{"a", "b", Wildcard}, nil, epoch)
	u := set("a", "b")
	for _, r := range u.Set {
		r.GoesStale = true
	}
	for range 10_000 {
		h.Apply(byName, u)
		h.Apply(all, u)
	}
	if n := cap(s.marks.Renewed); n == 0 || n > 200 || !s.marks.WildcardRenewed || wakes != 1 {
		t.Errorf("the mailbox of 2 names has room for %d, wildcard %v; %d wakes", n, s.marks.WildcardRenewed, wakes)
	}
}

// TestUncachedDoesNotLinger: what is not to be cached is kept, and served, while somebody subscribes to it, and
// no longer; for others a name, or the wildcard, lingers (VALID-5).
func TestUncachedDoesNotLinger(t *testing.T) {
	for _, uncached := range []bool{true, false} {
		h := newHub()
		r := cache.NewResource("T", &discovery.Resource{
			Name: "a", Resource: &anypb.Any{TypeUrl: "T", Value: []byte("body")}, CacheControl: &discovery.Resource_CacheControl{DoNotCache: uncached},
		}, cache.Fingerprint{})
		first, second := h.Subscribe(typ, NewSubscriber(func() {})), h.Subscribe(typ, NewSubscriber(func() {}))
		for _, s := range []*Subscription{first, second} {
			s.Delta([]string{"a", Wildcard}, nil, epoch)
		}
		changes(h)
		for _, lane := range []Lane{byName, all} {
			h.Apply(lane, &cache.Update{Set: []cache.Received{{Resource: r}}, Synced: lane == all})
		}
		first.Close(epoch)
		second.Read(func(v View) {
			id, _ := v.Lookup("a")
			if got := v.Answer(id).Resource; got != r {
				t.Errorf("the second client is given %v", got)
			}
		})
		if i := changes(h); len(i[byName].Drop)+len(i[all].Drop) > 0 {
			t.Errorf("given up while somebody wants it: %v", i)
		}
		second.Close(epoch)
		given := changes(h)
		if n := len(given[byName].Drop) + len(given[all].Drop); uncached && n != 2 || !uncached && n != 0 {
			t.Errorf("uncached: %v, and given up are %v", uncached, given)
		}
	}
}
