package fanout

import (
	"fmt"
	"slices"
	"testing"

	"github.com/xds-relay/xds-relay/cache"
)

// TestGivenUpTwice: a name that one request gives up twice is given up once, and the others stay
// (DOWN-DELTA-17).
func TestGivenUpTwice(t *testing.T) {
	h := newHub()
	s := h.Subscribe(typ, NewSubscriber(func() {}))
	s.Delta([]string{"a", "b", "c", Wildcard}, nil, epoch)
	if asked := s.Delta(nil, []string{"b", "nobody", "b", "a"}, epoch); !slices.Equal(asked.Left, []string{"b", "a"}) {
		t.Errorf("%q are left, want b and a", asked.Left)
	}
	var names []string
	s.Read(func(v View) {
		for _, id := range v.Names() {
			names = append(names, v.Name(id))
		}
	})
	if !slices.Equal(names, []string{"c"}) {
		t.Errorf("%q stay, want c", names)
	}
}

// TestMarksOfWhatWasGivenUp go when there must be fewer: else each new one would look at all of
// them (VALID-9).
func TestMarksOfWhatWasGivenUp(t *testing.T) {
	h := newHub()
	s := h.Subscribe(typ, NewSubscriber(func() {}))
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprint("n", i))
	}
	s.Delta(names, nil, epoch)
	h.Apply(byName, set(names...))
	s.Delta(nil, names[1:], epoch)
	h.Apply(byName, set(names[0]))
	s.Read(func(v View) {
		id, _ := v.Lookup(names[0])
		if marks := v.Marks().Content; !slices.Equal(marks, []cache.ID{id}) {
			t.Errorf("%d names are marked, want the one", len(marks))
		}
	})
}
