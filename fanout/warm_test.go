package fanout

import (
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// TestNamesFromDiskThatAreGivenUp: names that nobody came back for are given up, and
// what is left is not stale for their sake: else a snapshot would keep its age, and
// in the end be too old to be used (RECON-19).
func TestNamesFromDiskThatAreGivenUp(t *testing.T) {
	before := newHub()
	old := before.Subscribe(typ, NewSubscriber(func() {}))
	old.Delta([]string{"a", Wildcard}, nil, epoch)
	before.Changes(everything)
	before.Apply(byName, set("a"))
	u := set("a", "b")
	u.Synced = true
	before.Apply(all, u)

	h := newHub()
	h.Load(before.Save(func(cache.TypeURL) bool { return false }), epoch)
	h.Changes(everything)
	s := h.Subscribe(typ, NewSubscriber(func() {}))
	s.Delta([]string{Wildcard}, nil, epoch)
	if !h.Stale() || !h.Warm(byName) || !h.Warm(all) {
		t.Fatal("what was loaded is not warm")
	}
	h.Apply(all, &cache.Update{Synced: true})
	h.Expire(epoch.Add(time.Hour))
	h.Changes(everything)
	if h.Warm(byName) || h.Stale() {
		t.Errorf("names given up are still warm: %v; stale: %v", h.Warm(byName), h.Stale())
	}
}
