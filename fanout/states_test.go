package fanout

import (
	"maps"
	"testing"
	"time"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
)

// TestClientStates: of each name that the group subscribes to, and of each member of the set, the state is known, and
// each counts once.
func TestClientStates(t *testing.T) {
	h := NewHub(Config{Linger: time.Hour, MaxLinger: 10, Guard: Guard{Fraction: 0.1, Min: 1, Within: time.Hour, Hold: time.Hour}})
	names := []string{"here", "both", "asked", "bad", "badly-replaced", "gone", "held", "failed", "failed-later", "mute", "fallback"}
	s := h.Subscribe(typ, NewSubscriber(func() {}))
	s.Delta(append(names, Wildcard), nil, epoch)
	changes(h)
	h.On(byName).Asked(names)
	failed := func(names ...string) (errors []cache.Error) {
		for _, name := range names {
			errors = append(errors, cache.Error{Name: name, Status: &statuspb.Status{Code: cache.Unavailable}})
		}
		return errors
	}
	apply := func(l Lane, u *cache.Update) {
		u.Stream = 1
		h.Apply(l, u)
	}
	is := func(what string, want map[ClientState]int) {
		t.Helper()
		if got := h.Summarize()[0].States; !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	is("nothing has come", map[ClientState]int{StateRequested: 11})
	apply(byName, set("here", "both", "badly-replaced", "held", "failed-later"))
	apply(byName, &cache.Update{Removed: []string{"gone"}, Errors: failed("failed", "failed-later"), Malformed: []string{"bad", "badly-replaced"}})
	apply(byName, &cache.Update{Missing: []string{"mute"}})
	apply(byName, &cache.Update{Unanswered: []string{"fallback"}})
	apply(byName, &cache.Update{Removed: []string{"held"}})
	members := set("both", "m", "n", "held-member", "fallback")
	members.Synced = true
	apply(all, members)
	apply(all, &cache.Update{Malformed: []string{"n", "bad-member"}})
	apply(all, &cache.Update{Removed: []string{"held-member"}})
	is("all kinds", map[ClientState]int{
		StateAcked:               3, // here, both, m
		StateRequested:           1,
		StateNacked:              2, // bad, bad-member
		StateNackedCached:        2, // badly-replaced, n
		StateDoesNotExist:        1,
		StateDoesNotExistCached:  2, // held, held-member
		StateReceivedError:       1,
		StateReceivedErrorCached: 1,
		StateTimeout:             1,
		StateTimeoutCached:       1,
	})
	s.Close(epoch)
	if got := h.Summarize()[0].States[StateAcked]; got != 3 {
		t.Errorf("%d of what lingers are acknowledged, want 3", got)
	}
	known := ClientStates()
	if len(known) != 11 {
		t.Errorf("%d states are listed", len(known))
	}
}

// BenchmarkSummarize is what a scrape costs the clients of a type with 10,000 names and as many members.
func BenchmarkSummarize(b *testing.B) {
	h := newHub()
	names := make([]string, 10_000)
	for i := range names {
		names[i] = "name-" + string(rune('a'+i%26)) + time.Duration(i).String()
	}
	for range 10 {
		h.Subscribe(typ, NewSubscriber(func() {})).Delta(append(names, Wildcard), nil, epoch)
	}
	changes(h)
	h.On(byName).Asked(names)
	h.Apply(byName, set(names...))
	h.Apply(all, set(names...))
	b.ReportAllocs()
	for b.Loop() {
		h.Summarize()
	}
}
