package fanout

import (
	"slices"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// TestGuardHearsWhatIsKept: a control plane that has taken much away, and then speaks of some
// of it as of something that is there, by a heartbeat or by an update with a fault, has it after
// all: when the time is up, only the rest goes (H-22, TTL-4).
func TestGuardHearsWhatIsKept(t *testing.T) {
	for _, lane := range []Lane{all, byName} {
		guard := Guard{Fraction: 0.5, Min: 2, Within: time.Minute, Hold: 5 * time.Minute}
		h := NewHub(Config{Linger: time.Second, MaxLinger: 10, Guard: guard})
		interest := []string{"a", "b", "c"}
		if lane.Wildcard {
			interest = []string{Wildcard}
		}
		h.Subscribe(typ, NewSubscriber(func() {})).Delta(interest, nil, epoch)
		first := set("a", "b", "c")
		first.Stream, first.At, first.Synced = 1, epoch, lane.Wildcard
		h.Apply(lane, first)
		held := h.Apply(lane, &cache.Update{Stream: 2, At: epoch, Removed: []string{"a", "b", "c"}}).Held
		if held.Count != 3 || !slices.Equal(held.First, []string{"a", "b", "c"}) || held.Returned != 0 {
			t.Errorf("%v: %+v is reported", lane, held)
		}
		for _, name := range []string{"a", "b", "c"} {
			if !h.On(lane).Has(name) {
				t.Fatalf("%v: %s is gone at once", lane, name)
			}
		}
		for _, want := range []int{1, 0} {
			if n := h.Apply(lane, &cache.Update{Stream: 2, At: epoch, Kept: []string{"b", "other"}}).Held.Returned; n != want {
				t.Errorf("%v: %d removals are forgotten, want %d", lane, n, want)
			}
		}
		h.Lapse(epoch.Add(guard.Hold + time.Second))
		for _, name := range []string{"a", "b", "c"} {
			if has := h.On(lane).Has(name); has != (name == "b") {
				t.Errorf("%v: %s is there when the time is up: %v", lane, name, has)
			}
		}
	}
}

// TestForgottenRemovalsAreCounted: also those of which the next stream, which is asked without versions, has to say anyhow
// whether their resources are there.
func TestForgottenRemovalsAreCounted(t *testing.T) {
	guard := Guard{Fraction: 0.2, Min: 2, Within: time.Hour, Hold: 5 * time.Minute}
	for _, lane := range []Lane{all, byName} {
		h := NewHub(Config{Linger: time.Second, MaxLinger: 10, Guard: guard})
		names := []string{"a", "b", "c"}
		interest := names
		if lane.Wildcard {
			interest = []string{Wildcard}
		}
		h.Subscribe(typ, NewSubscriber(func() {})).Delta(interest, nil, epoch)
		shown := func(stream uint64, versions bool) {
			h.On(lane).Resume(cache.Origin{Entry: "e"}, stream, func(cache.Origin) bool { return versions })
		}
		shown(1, false)
		first := set(names...)
		first.Stream, first.At, first.Synced, first.First = 1, epoch, lane.Wildcard, true
		h.Apply(lane, first)
		shown(2, true)
		h.Apply(lane, &cache.Update{Stream: 2, At: epoch, Removed: names[:2]})
		shown(3, false)
		ends := epoch.Add(guard.Hold)
		if l := h.Lapse(ends)[typ]; l.Returned != 2 || l.LetGo != 0 || !h.On(lane).Has("a") {
			t.Errorf("%v: %+v", lane, l)
		}
		if l := h.Lapse(ends.Add(time.Hour)); len(l) != 0 {
			t.Errorf("%v: they are counted again: %+v", lane, l)
		}
	}
}

// TestWhatIsFromDiskIsConfirmedWithARelease: what is from disk stays unconfirmed for as long as
// removals are held back: until an operator lets them go, or their time is up. Then a wildcard's set
// is confirmed if upstream has said everything, and names that are removed are (RECON-19, H-22).
func TestWhatIsFromDiskIsConfirmedWithARelease(t *testing.T) {
	guard := Guard{Fraction: 0.5, Min: 2, Within: time.Minute, Hold: 5 * time.Minute}
	ends := map[string]func(*Hub){
		"released": func(h *Hub) { h.Of(typ).Release(epoch) },
		"in time":  func(h *Hub) { h.Lapse(epoch.Add(guard.Hold)) },
	}
	for _, lane := range []Lane{all, byName} {
		saved := Saved{Lane: lane, Names: []string{"a", "b", "c"}}
		for _, r := range set("a", "b", "c").Set {
			saved.Resources = append(saved.Resources, cache.Held{Resource: r.Resource, Announced: true})
		}
		for end, f := range ends {
			h := NewHub(Config{Linger: time.Hour, MaxLinger: 10, Guard: guard})
			h.Disk().Load([]Saved{saved}, epoch)
			h.Apply(lane, &cache.Update{Stream: 2, At: epoch, Removed: []string{"a", "b", "c"}, Synced: lane.Wildcard})
			if !stale(h) {
				t.Errorf("%v: confirmed, and the removals are held back", lane)
			}
			if f(h); stale(h) {
				t.Errorf("%v: not confirmed when the removals are %s", lane, end)
			}
		}
	}
}

// TestAHoldEndsBesideOthersThatWait: removals that wait until the silence of a later stream counts do not
// keep those that this stream itself has brought (H-22).
func TestAHoldEndsBesideOthersThatWait(t *testing.T) {
	guard := Guard{Fraction: 0.2, Min: 2, Within: time.Hour, Hold: 5 * time.Minute}
	for _, lane := range []Lane{all, byName} {
		h := NewHub(Config{Linger: time.Second, MaxLinger: 10, Guard: guard})
		names := []string{"a", "b", "c", "d", "e", "f"}
		interest := names
		if lane.Wildcard {
			interest = []string{Wildcard}
		}
		h.Subscribe(typ, NewSubscriber(func() {})).Delta(interest, nil, epoch)
		shown := func(stream uint64) {
			h.On(lane).Resume(cache.Origin{Entry: "e"}, stream, func(cache.Origin) bool { return true })
		}
		shown(1)
		first := set(names...)
		first.Stream, first.At, first.Synced = 1, epoch, lane.Wildcard
		h.Apply(lane, first)
		shown(2)
		h.Apply(lane, &cache.Update{Stream: 2, At: epoch, Removed: names[:4]})
		shown(3)
		ends := epoch.Add(guard.Hold)
		h.Lapse(ends)
		if at := h.Expiry(); !at.IsZero() {
			t.Errorf("%v: everything waits for stream 3, and Lapse is to be called at %v", lane, at)
		}
		h.Apply(lane, &cache.Update{Stream: 3, At: ends, Removed: names[4:]})
		h.Lapse(ends.Add(guard.Hold))
		for i, name := range names {
			if has := h.On(lane).Has(name); has != (i < 4) {
				t.Errorf("%v: %s is there: %v", lane, name, has)
			}
		}
	}
}
