package fanout

import (
	"slices"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
)

func none(cache.TypeURL) bool { return false }

// keeping is a Hub that notes what it gives up.
func keeping() *Hub {
	return NewHub(Config{Linger: time.Second, MaxLinger: 10, KeepUnwanted: true})
}

// leave has a client want names and the wildcard, upstream announce a and b by name and c as the set, and
// all of it be given up.
func leave(t *testing.T, h *Hub) {
	t.Helper()
	s := h.Subscribe(typ, NewSubscriber(func() {}))
	s.Delta([]string{"a", "b", "gone", Wildcard}, nil, epoch)
	changes(h)
	h.On(byName).Asked([]string{"a", "b", "gone"})
	h.Apply(byName, set("a", "b"))
	h.Apply(byName, &cache.Update{Removed: []string{"gone"}})
	u := set("c")
	u.Synced = true
	h.Apply(all, u)
	if left := h.Disk().Unwanted(none); len(left) > 0 {
		t.Fatalf("what is wanted is given up: %v", left)
	}
	s.Close(epoch)
	h.Expire(epoch.Add(time.Hour))
	changes(h)
	h.Over(0) // else the names are remembered until the stream ends
}

// TestWhatIsGivenUpIsNoted: what nobody wants any more is handed over once, with what is known to be gone, and then the
// type costs nothing.
func TestWhatIsGivenUpIsNoted(t *testing.T) {
	h := keeping()
	leave(t, h)
	left := h.Disk().Unwanted(none)
	if len(left) != 2 || !slices.Equal(left[0].Names, []string{"a", "b"}) || len(left[0].Resources) != 2 || !slices.Equal(left[0].Gone, []string{"gone"}) {
		t.Errorf("of the names there is %+v", left)
	}
	if len(left) == 2 && (!left[1].Lane.Wildcard || len(left[1].Resources) != 1) {
		t.Errorf("of the set there is %+v", left[1])
	}
	if again := h.Disk().Unwanted(none); len(again) > 0 || len(h.types.indexes) > 0 {
		t.Errorf("then there is %v, and %d types", again, len(h.types.indexes))
	}
	for name, h := range map[string]*Hub{"a Hub that keeps nothing": newHub(), "a type that is skipped": keeping()} {
		leave(t, h)
		if left := h.Disk().Unwanted(func(cache.TypeURL) bool { return true }); len(left) > 0 || len(h.types.indexes) > 0 {
			t.Errorf("%s: there is %v, and %d types", name, left, len(h.types.indexes))
		}
	}
}

// TestTheShelf: what was given up is served by the next relay to whoever asks for it, with its age, until upstream is
// there; and until then the relay subscribes to nothing else of it.
func TestTheShelf(t *testing.T) {
	before := keeping()
	leave(t, before)
	old := time.Unix(5, 0)
	left := before.Disk().Unwanted(none)
	for i := range left {
		left[i].AsOf = old
	}
	h := keeping()
	h.Disk().Shelve(left)
	if n := len(h.Lanes()); n > 0 || !h.Bare() {
		t.Errorf("%d lanes are wanted, bare: %v", n, h.Bare())
	}
	s := h.Subscribe(typ, NewSubscriber(func() {}))
	s.Delta([]string{"a", "c", "gone"}, nil, epoch) // c as a member of the set
	if names := h.On(byName).Names(); !slices.Equal(names, []string{"a", "c", "gone"}) {
		t.Errorf("it subscribes to %q", names)
	}
	s.Read(func(v View) {
		for name, want := range map[string]cache.State{"a": cache.Present, "c": cache.Present, "gone": cache.Unknown} {
			if id, _ := v.Lookup(name); v.Answer(id).State != want || v.Restored(id) != (want == cache.Present) {
				t.Errorf("%s is %v, restored: %v", name, v.Answer(id).State, v.Restored(id))
			}
		}
	})
	lanes := h.Disk().Save(none)
	if len(lanes) != 1 || !lanes[0].AsOf.Equal(old) || len(lanes[0].Resources) != 2 {
		t.Errorf("it is saved as %+v", lanes)
	}
	h.Apply(byName, set("a"))
	for _, lane := range h.Disk().Save(none) {
		if aged := lane.Names[0] == "c"; aged != lane.AsOf.Equal(old) {
			t.Errorf("%q is as of %v", lane.Names, lane.AsOf)
		}
	}
	h.KeepLingering(false) // upstream is there
	s.Delta([]string{"b", Wildcard}, nil, epoch)
	s.Read(func(v View) {
		if id, _ := v.Lookup("b"); v.Answer(id).State != cache.Unknown || v.Set().Resolution(false) != Pending {
			t.Errorf("b is %v, and the set %v, though upstream knows better", v.Answer(id).State, v.Set().Resolution(false))
		}
	})
}

// TestTheShelfServesOthers: a resource that is restored for one client's name is told to the client that waits for
// another of its names.
func TestTheShelfServesOthers(t *testing.T) {
	r := cache.NewResource("T", &discovery.Resource{
		Name: "a", Aliases: []string{"x", "y"}, Resource: &anypb.Any{TypeUrl: "T"},
	}, cache.Fingerprint{})
	h := keeping()
	h.Disk().Shelve([]Saved{{Lane: byName, Names: []string{"x"}, Resources: []cache.Held{{Resource: r}}}})
	woken := 0
	first := h.Subscribe(typ, NewSubscriber(func() { woken++ }))
	first.Delta([]string{"y"}, nil, epoch)
	second := h.Subscribe(typ, NewSubscriber(func() {}))
	second.Delta([]string{"x"}, nil, epoch)
	if woken != 1 {
		t.Errorf("the client that asked for an alias before is woken %d times, want 1", woken)
	}
}
