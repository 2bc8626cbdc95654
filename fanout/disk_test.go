package fanout

import (
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// TestNamesFromDiskThatAreGivenUp: restored names that no client came back for are given up, and
// then the rest does not count as stale. Otherwise a snapshot would keep its age, and in the end be
// too old to be used (RECON-19).
func TestNamesFromDiskThatAreGivenUp(t *testing.T) {
	before := newHub()
	old := before.Subscribe(typ, NewSubscriber(func() {}))
	old.Delta([]string{"a", Wildcard}, nil, epoch)
	changes(before)
	before.Apply(byName, set("a"))
	u := set("a", "b")
	u.Synced = true
	before.Apply(all, u)

	h := newHub()
	h.Disk().Load(before.Disk().Save(func(cache.TypeURL) bool { return false }), epoch)
	changes(h)
	s := h.Subscribe(typ, NewSubscriber(func() {}))
	s.Delta([]string{Wildcard}, nil, epoch)
	if !stale(h) {
		t.Fatal("what was loaded counts as confirmed")
	}
	h.Apply(all, &cache.Update{Synced: true})
	h.Expire(epoch.Add(time.Hour))
	changes(h)
	if stale(h) {
		t.Error("names given up are still unconfirmed")
	}
}

// TestWhatIsKeptIsSaved: when a relay sends its clients away, the resources that they wanted are
// saved, even if nothing lingers or the drain takes longer than that (RECON-19).
func TestWhatIsKeptIsSaved(t *testing.T) {
	for _, keep := range []bool{false, true} {
		h := newHub()
		s := h.Subscribe(typ, NewSubscriber(func() {}))
		s.Delta([]string{"a", Wildcard}, nil, epoch)
		changes(h)
		h.Apply(byName, set("a"))
		u := set("b")
		u.Synced = true
		h.Apply(all, u)
		if keep {
			h.Disk().Keep()
		}
		s.Close(epoch)
		h.Expire(epoch.Add(time.Hour))
		changes(h)
		// A stream that begins meanwhile shows what is kept, and so asks for it (RECON-7).
		if names := h.On(byName).Names(); len(names) != map[bool]int{false: 0, true: 1}[keep] {
			t.Errorf("kept %v: a stream that begins now asks for %v", keep, names)
		}
		if n := len(h.Disk().Save(func(cache.TypeURL) bool { return false })); n != map[bool]int{false: 0, true: 2}[keep] {
			t.Errorf("kept %v: %d lanes are saved", keep, n)
		}
	}
}

// stale reports whether anything is restored.
func stale(h *Hub) bool { return h.types.any((*index).anyUnconfirmed) }
