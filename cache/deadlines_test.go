package cache

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestDeadlinesAgainstAMap: whatever is set, changed and taken out, the first is the earliest of a plain map.
func TestDeadlinesAgainstAMap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var d Deadlines[int]
	plain := make(map[int]time.Time)
	for range 5000 {
		of, at := r.IntN(20), time.Time{}
		if r.IntN(3) > 0 {
			at = time.Unix(int64(r.IntN(50)), 0)
		}
		d.Set(of, at)
		if plain[of] = at; at.IsZero() {
			delete(plain, of)
		}
		if r.IntN(50) == 0 {
			now := time.Unix(int64(r.IntN(50)), 0)
			for _, of := range d.Due(now) {
				if plain[of].After(now) {
					t.Fatalf("%d is due at %v, not yet at %v", of, plain[of], now)
				}
				delete(plain, of)
			}
		}
		var first time.Time
		for of, at := range plain {
			if first.IsZero() || at.Before(first) {
				first = at
			}
			if !d.Of(of).Equal(at) {
				t.Fatalf("%d has %v, want %v", of, d.Of(of), at)
			}
		}
		if _, at := d.First(); !at.Equal(first) {
			t.Fatalf("the first is at %v, want %v", at, first)
		}
	}
}
