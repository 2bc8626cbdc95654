package fanout

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestLingerInAnOutage: while upstream is not alive what leads to something lingers whatever
// its number; names that lead to nothing are bounded, whoever invents them, and take no room
// from the others. When it is alive again the bound is for all (NODE-10).
func TestLingerInAnOutage(t *testing.T) {
	h := NewHub(Config{Linger: time.Hour, MaxLinger: 10})
	h.KeepLingering(true)
	subscribe := func(kind string, n int) (s *Subscription, names []string) {
		for i := range n {
			names = append(names, fmt.Sprintf("%s-%03d", kind, i))
		}
		s = h.Subscribe(typ, NewSubscriber(func() {}))
		s.Delta(names, nil, epoch)
		changes(h)
		h.On(byName).Asked(names)
		return s, names
	}
	count := func(kind string) (n int) {
		for _, name := range h.On(byName).Names() {
			if name[:len(kind)] == kind {
				n++
			}
		}
		return n
	}
	real, present := subscribe("real", 100)
	h.Apply(byName, set(present...))
	real.Close(epoch)
	for range 3 {
		invented, _ := subscribe("void", 50)
		invented.Close(epoch)
	}
	late, names := subscribe("late", 5) // these are answered while they linger
	late.Close(epoch)
	h.Apply(byName, set(names...))
	more, _ := subscribe("more", 50)
	more.Close(epoch)
	changes(h)
	if real, void, late, more := count("real"), count("void"), count("late"), count("more"); real != 100 || void != 0 || late != 5 || more != 10 {
		t.Errorf("there linger %d that were answered, %d and %d that were not, and %d that were later; want 100, 0, 10 and 5", real, void, more, late)
	}
	h.Reconfigure(Config{Linger: time.Hour, MaxLinger: 4})
	if real, more := count("real"), count("more"); real != 100 || more != 4 {
		t.Errorf("with another bound there linger %d and %d; want 100 and 4", real, more)
	}
	h.KeepLingering(false)
	changes(h)
	if left := h.On(byName).Names(); len(left) != 4 || slices.ContainsFunc(left, func(name string) bool { return name[:4] != "more" }) {
		t.Errorf("when upstream is alive again there linger %v; want the 4 latest", left)
	}
}

// TestBare: a resource, or a set that is known to be empty, is content.
func TestBare(t *testing.T) {
	for name, tt := range map[string]struct {
		tell func(h *Hub)
		bare bool
	}{
		"nothing":                  {func(*Hub) {}, true},
		"a name that is not there": {func(h *Hub) { u := set(); u.Removed = []string{"a"}; h.Apply(byName, u) }, true},
		"a resource":               {func(h *Hub) { h.Apply(byName, set("a")) }, false},
		"an empty set":             {func(h *Hub) { u := set(); u.Synced = true; h.Apply(all, u) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub()
			s := h.Subscribe(typ, NewSubscriber(func() {}))
			s.Delta([]string{"a", Wildcard}, nil, epoch)
			changes(h)
			tt.tell(h)
			if h.Bare() != tt.bare {
				t.Errorf("bare: %v, want %v", h.Bare(), tt.bare)
			}
		})
	}
}

// TestNoneLingers: with a bound of 0 a name that its last client gives up is unsubscribed at once.
func TestNoneLingers(t *testing.T) {
	h := NewHub(Config{Linger: time.Hour})
	s := h.Subscribe(typ, NewSubscriber(func() {}))
	s.Delta([]string{"a", "b"}, nil, epoch)
	changes(h)
	h.Apply(byName, set("a", "b"))
	s.Delta(nil, []string{"a"}, epoch)
	changes(h)
	if left := h.On(byName).Names(); len(left) != 1 || left[0] != "b" {
		t.Errorf("when a is given up there are %v; want b", left)
	}
	s.Close(epoch)
	changes(h)
	if left := h.On(byName).Names(); len(left) != 0 {
		t.Errorf("when the last client has left there are %v; want none", left)
	}
}
