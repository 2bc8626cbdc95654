package fanout

import (
	"fmt"
	"testing"

	"github.com/xds-relay/xds-relay/cache"
)

// TestHistory: of a name that was replaced or removed, what it was before is remembered, and of all groups together
// only so much.
func TestHistory(t *testing.T) {
	history := NewHistory(1 << 20)
	open := func(types cache.Types) *Hub {
		h := NewHub(Config{History: history, Types: types})
		h.Subscribe(typ, NewSubscriber(func() {})).Delta([]string{"a", "b", Wildcard}, nil, epoch)
		changes(h)
		h.On(byName).Asked([]string{"a", "b"})
		return h
	}
	h := open(nil)
	first, second := set("a", "b"), set("a")
	h.Apply(byName, first)
	for _, d := range describeAll(h) {
		if d.Former != nil {
			t.Errorf("%s was %v before it was there", d.Name, d.Former)
		}
	}
	h.Apply(byName, second)
	h.Apply(byName, second)
	h.Apply(byName, &cache.Update{Removed: []string{"b"}})
	for i, d := range describeAll(h) {
		if d.Former != first.Set[i].Resource {
			t.Errorf("%s was %v before, want %v", d.Name, d.Former, first.Set[i].Resource)
		}
	}

	secret := open(cache.Types{typ: {Secret: true}})
	for range 2 {
		secret.Apply(byName, set("a"))
	}
	if n := history.order.Len(); n != 2 {
		t.Errorf("%d are remembered after secrets changed, want 2", n)
	}

	other := open(nil)
	for range 3 {
		other.Apply(all, set("c"))
	}
	if n := history.order.Len(); n != 3 {
		t.Errorf("%d are remembered, want 3", n)
	}
	h.Close()
	if n := history.order.Len(); n != 1 || len(history.entries) != 1 {
		t.Errorf("%d are remembered after their group has ended, want 1", n)
	}
	for i := range 10_000 {
		other.Apply(byName, set("a"))
		other.Apply(all, set(fmt.Sprint("c", i%100)))
	}
	history.Resize(10_000)
	for range 2 {
		if history.bytes > 10_000 || history.order.Len() == 0 || history.order.Len() != len(history.entries) {
			t.Errorf("%d bytes of %d names are remembered", history.bytes, history.order.Len())
		}
		other.Apply(all, set("c5"))
	}
	history.Resize(0)
	other.Apply(all, set("c5"))
	if history.bytes != 0 || history.order.Len() != 0 {
		t.Errorf("%d bytes of %d names are remembered without a bound to keep any", history.bytes, history.order.Len())
	}
}
