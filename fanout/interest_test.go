package fanout

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/xds-relay/xds-relay/cache"
)

// Lists of subscribers that share an array do not write into each other, whatever comes and goes.
func TestInterest_ListsAreApart(t *testing.T) {
	const names, clients = 200, 5
	random := rand.New(rand.NewPCG(1, 2))
	var i interest
	subs := make([]*Subscription, clients)
	for n := range subs {
		subs[n] = &Subscription{number: uint64(n)}
	}
	want := make(map[cache.ID][]*Subscription)
	for range 20_000 {
		id, s := cache.ID(1+random.IntN(names)), subs[random.IntN(clients)]
		if at, has := slices.BinarySearchFunc(want[id], s.number, func(e *Subscription, n uint64) int { return int(e.number) - int(n) }); has {
			i.remove(s, id)
			want[id] = slices.Delete(want[id], at, at+1)
		} else {
			i.add(s, id)
			want[id] = slices.Insert(want[id], at, s)
		}
		for id, subs := range want {
			if !slices.Equal(i.of(id), subs) {
				t.Fatalf("the subscribers of name %d are %v, want %v", id, i.of(id), subs)
			}
		}
	}
}
