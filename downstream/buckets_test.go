package downstream

import (
	"fmt"
	"testing"
	"time"
)

// TestBuckets: of very many holders some are forgotten, and all are in time.
func TestBuckets(t *testing.T) {
	const within, most = 10 * time.Second, 100
	b := buckets{within: within}
	now := time.Now()
	for i := range maxBuckets + 10 {
		b.add(fmt.Sprint(i), 1, most, now)
	}
	if len(b.by) != maxBuckets {
		t.Errorf("%d are remembered", len(b.by))
	}
	now = now.Add(within)
	expect := func(what string, n int, want float64) {
		t.Helper()
		if over := b.add("new", n, most, now); over != want {
			t.Errorf("%s: %v are too many, want %v", what, over, want)
		}
	}
	expect("the first", most, 0)
	if len(b.by) != 1 || !b.half("new", most, now) {
		t.Errorf("%d are remembered: %v", len(b.by), b.by)
	}
	expect("one more", 1, 1)
	now = now.Add(within / 2)
	expect("half of them are forgotten", most, 51)
	b.spill("new", most)
	expect("what was too many is, too", 0, 0)
	if now = now.Add(within); b.half("new", most, now) {
		t.Error("they are not forgotten in time")
	}
}
