package cache

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestMatchesAreAList: whatever comes and goes, few or many, they are each once and in the order
// in which they came.
func TestMatchesAreAList(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		var m matches
		var want []ID
		for range 2000 {
			id := ID(1 + r.IntN(1+int(seed)*10))
			if i := slices.Index(want, id); r.IntN(2) == 0 {
				if m.add(id); i < 0 {
					want = append(want, id)
				}
			} else if m.remove(id); i >= 0 {
				want = slices.Delete(want, i, i+1)
			}
			if got := slices.Collect(m.all()); len(m.ids) > 0 != (len(want) > 0) || !slices.Equal(got, want) {
				t.Fatalf("seed %d: %v in %v, want %v", seed, got, m.ids, want)
			}
			if len(m.ids) > 2*len(want)+fewMatches {
				t.Fatalf("seed %d: %d places for %d", seed, len(m.ids), len(want))
			}
		}
	}
}
