package session

import (
	"slices"
	"testing"
	"time"
)

// TestPairsAreBounded: at most so many names are asked for again at a time, first those whose
// silence is going to count (UP-19).
func TestPairsAreBounded(t *testing.T) {
	now := time.Unix(0, 0)
	u := unanswered{on: true, due: []string{"a", "b", "c"}, learned: now}
	u.look([]string{"d", "e", "f"})
	now = now.Add(retryFirst)
	for _, want := range [][]string{{"a", "b"}, {"c", "d"}, {"e", "f"}, {}} {
		if u.choose(2, now); !slices.Equal(u.pair, want) {
			t.Errorf("the pair is %q, want %q", u.pair, want)
		}
	}
}

// TestRetriesBecomeRare: an absent name is asked for again at intervals that double up to five
// minutes (UP-19).
func TestRetriesBecomeRare(t *testing.T) {
	now := time.Unix(0, 0)
	u := unanswered{on: true, learned: now}
	u.look([]string{"a"})
	for _, want := range []time.Duration{5, 10, 20, 40, 80, 160, 300, 300} {
		at := u.retryAt()
		if got := at.Sub(now); got != want*time.Second {
			t.Errorf("it is asked for after %v, want %v", got, want*time.Second)
		}
		now = at
		u.choose(1, now)
	}
}
