package fanout

import (
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// TestArrived: a position is told as the time of the response that made the change, and what is too long ago as a time
// by which it had been made.
func TestArrived(t *testing.T) {
	h := NewHub(Config{})
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	is := func(change cache.Seq, want time.Time, exactly bool) {
		t.Helper()
		if got, exact := h.Arrived(change); !got.Equal(want) || exact != exactly {
			t.Errorf("%d arrived at %v, exactly: %v; want %v, %v", change, got, exact, want, exactly)
		}
	}
	is(1, time.Time{}, false)
	h.arrivals.note(3, at(10))
	h.arrivals.note(4, at(11))
	h.arrivals.note(2, at(12)) // of another type, noted after a later change
	h.arrivals.note(9, at(13))
	is(1, at(10), true)
	is(3, at(10), true)
	is(4, at(11), true)
	is(5, at(13), true)
	is(10, time.Time{}, false)
	for i := range maxArrivals - 3 + 100 {
		h.arrivals.note(cache.Seq(10+i), at(100+i))
	}
	last := maxArrivals - 3 + 99
	is(cache.Seq(10+last), at(100+last), true)
	is(cache.Seq(11+last), time.Time{}, false)
	oldest := last - maxArrivals + 1
	is(cache.Seq(10+oldest), at(100+oldest), false)
	is(cache.Seq(11+oldest), at(101+oldest), true)
	is(2, at(100+oldest), false)
	for seq := 11 + oldest; seq <= 10+last; seq++ {
		is(cache.Seq(seq), at(90+seq), true)
	}
}

// TestChangedAt: of a resource it is known when it came to be what it is.
func TestChangedAt(t *testing.T) {
	h := newHub()
	h.Subscribe(typ, NewSubscriber(func() {})).Delta([]string{"a", "b"}, nil, epoch)
	changes(h)
	h.On(byName).Asked([]string{"a", "b"})
	send := func(s int64, u *cache.Update) {
		u.At = time.Unix(s, 0)
		h.Apply(byName, u)
	}
	u := set("a", "b")
	send(10, u)
	send(20, set("b"))
	send(30, &cache.Update{Set: u.Set[:1]}) // it has not changed
	for _, d := range describeAll(h) {
		if want := map[string]int64{"a": 10, "b": 20}[d.Name]; d.Changed.Unix() != want || d.ChangedBefore {
			t.Errorf("%s changed at %v (before: %v), want %d", d.Name, d.Changed, d.ChangedBefore, want)
		}
	}
}

func describeAll(h *Hub) []Description {
	page, _ := h.Of(typ).Describe(Place{}, 100, func(string) bool { return true })
	return page
}
