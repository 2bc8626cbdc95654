package fanout

import (
	"maps"
	"testing"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
)

// TestWaiting: clients wait on a lane until upstream has said anything on it; that its
// silence was taken for an answer is no word of its own, nor is what another origin said.
func TestWaiting(t *testing.T) {
	h := newHub()
	want := func(what string, named, wildcard int, heardNamed, heardWildcard bool) {
		t.Helper()
		if n, w := h.On(byName).Waiting(), h.On(all).Waiting(); n != named || w != wildcard {
			t.Errorf("%s: %d wait for names and %d for the wildcard, want %d and %d", what, n, w, named, wildcard)
		}
		if n, w := h.On(byName).Heard(), h.On(all).Heard(); n != heardNamed || w != heardWildcard {
			t.Errorf("%s: heard of names %v, of the wildcard %v, want %v and %v", what, n, w, heardNamed, heardWildcard)
		}
	}
	subscribe := func(names ...string) {
		h.Subscribe(typ, NewSubscriber(func() {})).Delta(names, nil, epoch)
		changes(h)
		h.On(byName).Asked(names)
	}
	want("nobody", 0, 0, false, false)
	subscribe("a", "b")
	subscribe("b", "c", Wildcard)
	subscribe(Wildcard)
	want("nothing said", 2, 2, false, false)
	h.Apply(byName, &cache.Update{Missing: []string{"a", "b"}})
	want("silence", 2, 2, false, false)
	h.Apply(byName, &cache.Update{Unanswered: []string{"c"}})
	want("silence of a relay", 2, 2, false, false)
	h.Apply(all, &cache.Update{Synced: true})
	want("an empty set", 2, 0, false, true)
	h.Apply(byName, &cache.Update{Removed: []string{"b"}})
	want("a removal", 0, 0, true, true)

	// Another origin, which has not been shown what is here.
	h.Apply(byName, set("a"))
	h.Apply(byName, &cache.Update{Removed: []string{"c"}})
	h.Apply(all, set("a"))
	never := func(cache.Origin) bool { return false }
	h.On(byName).Resume(cache.Origin{Entry: "other"}, 2, never)
	h.On(all).Resume(cache.Origin{Entry: "other"}, 2, never)
	if n := h.On(all).Waiting(); n != 2 {
		t.Errorf("%d wait for another's set, want 2", n)
	}
	h.Apply(all, set("a"))
	if n := h.On(all).Waiting(); n != 0 {
		t.Errorf("%d wait for what was announced", n)
	}
	h.Apply(byName, &cache.Update{Errors: []cache.Error{{Name: "a", Status: &statuspb.Status{Code: cache.NotFound}}}})
	if n := h.On(byName).Waiting(); n != 0 {
		t.Errorf("%d wait for what was refused", n)
	}

	h = newHub()
	subscribe("a")
	h.Apply(byName, set("a"))
	want("an answer", 0, 0, true, false)
	h.On(byName).Resume(cache.Origin{Entry: "other"}, 2, never)
	want("another's answer", 1, 0, false, false)
}

// TestAbsentNamesByCause: how names came to be absent is told apart, and what became so
// for want of an answer, once (MISS-3).
func TestAbsentNamesByCause(t *testing.T) {
	h := newHub()
	h.Subscribe(typ, NewSubscriber(func() {})).Delta([]string{"a", "b", "c", "d", "e", Wildcard}, nil, epoch)
	changes(h)
	h.On(byName).Asked([]string{"a", "b", "c", "d", "e"})
	h.Apply(all, set("fallback"))
	h.Apply(byName, &cache.Update{Removed: []string{"a"}, Errors: []cache.Error{{Name: "b", Status: &statuspb.Status{Code: cache.NotFound}}}})
	a := h.Apply(byName, &cache.Update{Missing: []string{"a", "c", "d"}})
	if a.Silent != 2 || a.First != "c" {
		t.Errorf("%d became missing, the first of them %q; want 2 and c", a.Silent, a.First)
	}
	if a := h.Apply(byName, &cache.Update{Missing: []string{"c"}}); a.Silent != 0 {
		t.Errorf("%d became missing that were", a.Silent)
	}
	want := map[cache.Cause]int{cache.Removed: 1, cache.NotFoundError: 1, cache.Timer: 2}
	if got := h.Summarize()[0].Absent; !maps.Equal(got, want) {
		t.Errorf("absent by cause: %v, want %v", got, want)
	}
	// What has a fallback is not missing.
	h.Subscribe(typ, NewSubscriber(func() {})).Delta([]string{"fallback"}, nil, epoch)
	changes(h)
	if a := h.Apply(byName, &cache.Update{Missing: []string{"fallback"}}); a.Silent != 0 {
		t.Error("a name became missing that has a fallback")
	}
	if got := h.Summarize()[0].Absent; !maps.Equal(got, want) {
		t.Errorf("absent by cause: %v, want %v", got, want)
	}
}

// TestDroppedIsCounted: what nobody asked for and is not kept is counted, with what made
// room for something else (UP-9).
func TestDroppedIsCounted(t *testing.T) {
	one := set("one").Set[0].Size()
	for _, tt := range []struct {
		typ  cache.TypeURL
		room int // for so many
		want []int
	}{
		{cache.Cluster, 10, []int{0, 0, 0}},
		{cache.Cluster, 1, []int{0, 1, 2}},
		{cache.Cluster, 0, []int{1, 1, 2}},
		{cache.Endpoint, 10, []int{1, 1, 2}}, // not a full-state type
	} {
		h := NewHub(Config{MaxLinger: 10, Unasked: NewUnasked(tt.room * (one + 20))})
		h.Subscribe(tt.typ, NewSubscriber(func() {})).Delta([]string{"wanted"}, nil, epoch)
		changes(h)
		for i, names := range [][]string{{"wanted", "one"}, {"two"}, {"three", "four"}} {
			u := set(names...)
			u.Stream = 1
			if a := h.Apply(Lane{Type: tt.typ}, u); a.Dropped != tt.want[i] {
				t.Errorf("%s with room for %d: of %v %d are dropped, want %d", tt.typ.Short(), tt.room, names, a.Dropped, tt.want[i])
			}
		}
	}
}
