package fanout

import (
	"fmt"
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

// TestBodiesAreNotRetained: a body that is not to be cached is let go when it is
// sent; while a client is slow it has one of each name, the latest (VALID-5, H-12).
func TestBodiesAreNotRetained(t *testing.T) {
	h := newHub()
	s := h.Subscribe(typ, NewSubscriber(func() {}))
	s.Delta([]string{"a", "b", Wildcard}, nil, epoch)
	var last *cache.Resource
	for i := range 1000 {
		for _, lane := range []Lane{byName, all} {
			u := &cache.Update{}
			for _, name := range []string{"a", "b", "c"} {
				last = cache.NewResource("T", &discovery.Resource{
					Name: name, Resource: &anypb.Any{TypeUrl: "T", Value: fmt.Appendf(nil, "%s %d", name, i)},
					CacheControl: &discovery.Resource_CacheControl{DoNotCache: true},
				}, cache.Fingerprint{})
				u.Set = append(u.Set, cache.Received{Resource: last})
			}
			h.Apply(lane, u)
		}
	}
	if len(s.parcels) != 3 || s.parcels["c"].Resource != last {
		t.Errorf("%d bodies wait, of c %v; want 3, and %v", len(s.parcels), s.parcels["c"].Resource, last)
	}
	s.Read(func(v View) {
		for c := range v.Set().Since(0) {
			if body := v.Bodies().Body(c.Resource); body != last {
				t.Errorf("the body of %s is %v", c.Name, body)
			}
		}
		if asked := v.Bodies().Handed(true); len(asked) > 0 {
			t.Errorf("asked for: %v", asked)
		}
	})
	if len(s.parcels) != 0 {
		t.Errorf("%d bodies are left", len(s.parcels))
	}
	if x := h.types.of(h, typ); x.named.Bytes()+x.wildcard.Bytes() != 0 {
		t.Errorf("the tables keep %d bytes", x.named.Bytes()+x.wildcard.Bytes())
	}
	if asked := s.Delta(nil, []string{"a", "b", Wildcard}, epoch); asked.Wildcard {
		t.Error("asked for the wildcard by giving it up")
	}
	s.Close(epoch)
	if s.parcels != nil || s.awaited != nil {
		t.Error("a closed subscription holds bodies")
	}
}

// TestAskingAgainIsForgotten: what upstream is to be asked for once more is asked for
// once, and not at all if nobody is interested any more.
func TestAskingAgainIsForgotten(t *testing.T) {
	h := newHub()
	r := cache.NewResource("T", &discovery.Resource{
		Name: "a", Resource: &anypb.Any{TypeUrl: "T"}, CacheControl: &discovery.Resource_CacheControl{DoNotCache: true},
	}, cache.Fingerprint{})
	first, second := h.Subscribe(typ, NewSubscriber(func() {})), h.Subscribe(typ, NewSubscriber(func() {}))
	first.Delta([]string{"a"}, nil, epoch)
	changes(h)
	h.Apply(byName, &cache.Update{Set: []cache.Received{{Resource: r}}})
	woken := 0
	h.Wanted().OnWake(func() { woken++ })
	ask := func() {
		second.Read(func(v View) {
			id, _ := v.Lookup("a")
			v.Bodies().Ask(v.Answer(id).Resource)
			v.Bodies().Ask(v.Answer(id).Resource)
		})
	}
	second.Delta([]string{"a"}, nil, epoch)
	ask()
	if i := changes(h)[byName]; woken != 1 || len(i.Again) != 1 || i.Again[0] != "a" {
		t.Errorf("woken %d times for %+v", woken, i)
	}
	ask()
	if len(changes(h)) != 0 {
		t.Error("asked for twice, and not answered yet")
	}
	h.Apply(byName, &cache.Update{Set: []cache.Received{{Resource: r}}})
	if len(first.parcels) != 1 || first.parcels["a"].asked || len(second.parcels) != 1 || !second.parcels["a"].asked {
		t.Errorf("handed to the first: %v, to the second: %v", first.parcels, second.parcels)
	}
	second.Read(func(v View) { v.Bodies().Handed(true) })
	ask()
	first.Close(epoch)
	second.Close(epoch)
	h.Expire(epoch.Add(time.Hour))
	if i := changes(h)[byName]; len(i.Again) != 0 || len(i.Drop) != 1 || len(h.types.indexes) != 0 {
		t.Errorf("nobody is left, and there is %+v", i)
	}
}
