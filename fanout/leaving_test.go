package fanout

import (
	"fmt"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// TestWhatLeavesIsForgotten: a resource that has left is remembered only where and as long as a
// client may need it.
func TestWhatLeavesIsForgotten(t *testing.T) {
	h := newHub()
	s := h.Subscribe(typ, NewSubscriber(func() {}))
	s.Replace(Names{Some: true, Wildcard: true}, epoch)
	limited := set("limited")
	limited.Set[0].TTL, limited.At = time.Minute, epoch
	var told cache.Seq
	take := func(names ...string) {
		for _, u := range []*cache.Update{set(names...), limited} {
			h.Apply(all, u)
		}
		s.Read(func(v View) { told = v.Position() })
		h.Apply(all, &cache.Update{At: epoch, Removed: append(names, "limited")})
	}

	take("a")
	if got := whatLeaves(s, told); got != nil {
		t.Errorf("%v is remembered, and nobody needs it", got)
	}
	s.Read(func(v View) { v.Departed().Remember(10 * time.Second) })
	take("b", "c")
	if got := whatLeaves(s, told); len(got) != 2 || got[0] != "b" || got[1] != "c" {
		t.Errorf("%v leaves, want b and c", got)
	}
	if got := whatLeaves(s, 0); got != nil {
		t.Errorf("a newcomer is told of %v", got)
	}
	var news [2]*News
	s.Read(func(v View) {
		for i := range news {
			whole, _ := v.Set().News(0)
			news[i] = v.Departed().Among(whole.Resources, v.Departed().Since(told, nil))
		}
	})
	if news[0] != news[1] || len(news[0].Resources) != 2 {
		t.Errorf("sets that list the same are not shared, or %d are in it", len(news[0].Resources))
	}
	if at := h.Expiry(); !at.Equal(epoch.Add(10 * time.Second)) {
		t.Errorf("something is to be done at %v", at)
	}
	h.Lapse(h.Expiry())
	if x := h.types.of(h, typ); len(x.leaving.all) > 0 || x.wildcard.board.leaving != nil || !h.Expiry().IsZero() {
		t.Errorf("%v is kept", x.leaving.all)
	}
}

// TestWhatLeavesIsBounded: beyond the bound, the resource that left first is forgotten.
func TestWhatLeavesIsBounded(t *testing.T) {
	bounds := DefaultBounds
	bounds.Leaving = 2
	h := NewHub(Config{Linger: time.Second, MaxLinger: 10, Bounds: &bounds})
	s := h.Subscribe(typ, NewSubscriber(func() {}))
	s.Replace(Names{Some: true, Wildcard: true}, epoch)
	s.Read(func(v View) { v.Departed().Remember(10 * time.Second) })
	var told cache.Seq
	h.Apply(all, set("a", "b", "c", "d", "e"))
	s.Read(func(v View) { told = v.Position() })
	for at, want := range []string{"[a]", "[a b]", "[b c]", "[c d]", "[d e]"} {
		name := string(rune('a' + at))
		h.Apply(all, &cache.Update{At: epoch, Removed: []string{name}})
		if got := fmt.Sprint(whatLeaves(s, told)); got != want {
			t.Errorf("%s has left, and %s leaves, want %s", name, got, want)
		}
	}
	h.Apply(all, set("f", "g", "h"))
	s.Read(func(v View) { told = v.Position() })
	h.Apply(all, &cache.Update{At: epoch, Removed: []string{"f", "g", "h"}})
	if got := fmt.Sprint(whatLeaves(s, told)); got != "[g h]" {
		t.Errorf("three have left at once, and %s leaves", got)
	}
	if kept := h.types.of(h, typ).leaving.all; len(kept) > 2 {
		t.Errorf("%d are kept", len(kept))
	}
}

// TestNoMemberLeavesInPlaceOfWhatWasSent: a client has a name, and was sent the resource that it
// leads to. If that resource is not remembered, because it is beyond the bound or has a TTL, a
// member of the same name is not listed in its place (WILD-16).
func TestNoMemberLeavesInPlaceOfWhatWasSent(t *testing.T) {
	for _, ttl := range []time.Duration{0, time.Minute} {
		bounds := DefaultBounds
		if ttl == 0 {
			bounds.Leaving = 1
		}
		h := NewHub(Config{Linger: time.Second, MaxLinger: 10, Bounds: &bounds})
		s := h.Subscribe(typ, NewSubscriber(func() {}))
		s.Delta([]string{"a", Wildcard}, nil, epoch)
		changes(h)
		s.Read(func(v View) { v.Departed().Remember(10 * time.Second) })
		named := set("a")
		named.Set[0].TTL, named.At = ttl, epoch
		h.Apply(byName, named)
		h.Apply(all, set("a", "b"))
		var told cache.Seq
		s.Read(func(v View) {
			told = v.Position()
			id, _ := v.Lookup("a")
			v.Tell(id, ToldCopy(told))
		})
		h.Apply(byName, &cache.Update{At: epoch, Removed: []string{"a"}})
		h.Apply(all, &cache.Update{At: epoch, Removed: []string{"a"}})
		if got := whatLeaves(s, told); got != nil {
			t.Errorf("TTL %v: %v leaves, which the client was never sent", ttl, got)
		}
		s.Read(func(v View) { told = v.Position() })
		h.Apply(all, &cache.Update{At: epoch, Removed: []string{"b"}})
		if got := fmt.Sprint(whatLeaves(s, told)); got != "[b]" {
			t.Errorf("TTL %v: %v leaves, want b, which has left since then", ttl, got)
		}
	}
}

// whatLeaves are the names of what leaves to a client that was told of the type up to a position.
func whatLeaves(s *Subscription, told cache.Seq) (names []string) {
	s.Read(func(v View) {
		for _, l := range v.Departed().Since(told, nil) {
			names = append(names, l.Name)
		}
	})
	return names
}
