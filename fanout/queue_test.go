package fanout

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/xds-relay/xds-relay/cache"
)

// TestQueue compares a queue with a list that is searched, step by step.
func TestQueue(t *testing.T) {
	random := rand.New(rand.NewPCG(13, 7))
	var q queue[int]
	var ids []cache.ID
	known := make(map[cache.ID]int)
	for step := range 50_000 {
		id := cache.ID(random.IntN(1 + step%100))
		had := slices.Contains(ids, id)
		without := slices.DeleteFunc(slices.Clone(ids), func(other cache.ID) bool { return other == id })
		switch random.IntN(5) {
		case 0, 1:
			q.add(id, step)
			ids, known[id] = append(without, id), step
		case 2:
			if q.remove(id) != had {
				t.Fatalf("step %d: %d was taken out: %v, want %v", step, id, !had, had)
			}
			ids = without
		case 3:
			if oldest, when, ok := q.oldest(); ok != (len(ids) > 0) || ok && (oldest != ids[0] || when != known[oldest]) {
				t.Fatalf("step %d: the oldest is %d of step %d, want that of %v", step, oldest, when, ids)
			}
		default:
			if step%1000 == 0 {
				taken, want := q.take(1+step/100), ids[:min(len(ids), 1+step/100)]
				if !slices.EqualFunc(taken, want, func(e queued[int], id cache.ID) bool { return e == queued[int]{known[id], id} }) {
					t.Fatalf("step %d: %v were taken, want %v", step, taken, want)
				}
				ids = slices.Clone(ids[len(want):])
			}
		}
		if q.has(id) && *q.known(id) != known[id] {
			t.Fatalf("step %d: %d is of step %d, want %d", step, id, *q.known(id), known[id])
		}
		if q.len != len(ids) || q.has(id) != slices.Contains(ids, id) {
			t.Fatalf("step %d: %d IDs, with %d: %v; want %v", step, q.len, id, q.has(id), ids)
		}
		if all := slices.Collect(q.all()); !slices.Equal(all, ids) {
			t.Fatalf("step %d: %v, want %v", step, all, ids)
		}
		if len(q.items) > 2*q.len+minQueue+1 {
			t.Fatalf("step %d: %d IDs have %d places", step, q.len, len(q.items))
		}
	}
}
