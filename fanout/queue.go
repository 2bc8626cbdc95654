package fanout

import (
	"iter"

	"github.com/xds-relay/xds-relay/cache"
)

// wildcardID stands for the wildcard where names stand as IDs. No name has it.
const wildcardID cache.ID = 0

// queue holds IDs in the order in which they came, each once, with a value for each. It looks no
// name up, since an ID is an index; each operation takes constant time on average (VALID-9).
type queue[T any] struct {
	items []queued[T]
	first int      // places before it are empty
	at    []uint32 // by ID: the place in items plus one; zero: it is not in the queue
	len   int
}

type queued[T any] struct {
	known T
	id    cache.ID
}

func (q *queue[T]) has(id cache.ID) bool { return int(id) < len(q.at) && q.at[id] != 0 }

// known returns the value of an ID that is in the queue. It is valid until the queue changes.
func (q *queue[T]) known(id cache.ID) *T { return &q.items[q.at[id]-1].known }

// add puts an ID at the end, even if it was in the queue before.
func (q *queue[T]) add(id cache.ID, known T) {
	q.remove(id)
	if int(id) >= len(q.at) {
		q.at = append(q.at, make([]uint32, int(id)+1-len(q.at))...)
	}
	q.items = append(q.items, queued[T]{known, id})
	q.at[id] = uint32(len(q.items))
	q.len++
}

// remove takes an ID out. It reports whether the ID was in the queue.
func (q *queue[T]) remove(id cache.ID) bool {
	if !q.has(id) {
		return false
	}
	q.at[id] = 0
	q.len--
	if len(q.items) > 2*q.len+minQueue {
		q.compact()
	}
	return true
}

// minQueue is the number of empty places below which the queue is not compacted.
const minQueue = 16

func (q *queue[T]) compact() {
	var items []queued[T]
	if q.len > 0 {
		items = make([]queued[T], 0, 2*q.len+minQueue+1)
	}
	for i := q.first; i < len(q.items); i++ {
		if q.stands(i) {
			items = append(items, q.items[i])
			q.at[q.items[i].id] = uint32(len(items))
		}
	}
	q.items, q.first = items, 0
}

// stands reports whether a place is not empty.
func (q *queue[T]) stands(i int) bool { return q.at[q.items[i].id] == uint32(i+1) }

// oldest returns the ID that came first.
func (q *queue[T]) oldest() (id cache.ID, known T, ok bool) {
	for ; q.first < len(q.items); q.first++ {
		if q.stands(q.first) {
			return q.items[q.first].id, q.items[q.first].known, true
		}
	}
	return id, known, false
}

func (q *queue[T]) all() iter.Seq[cache.ID] {
	return func(yield func(cache.ID) bool) {
		for i := q.first; i < len(q.items); i++ {
			if q.stands(i) && !yield(q.items[i].id) {
				return
			}
		}
	}
}

// take takes out the IDs that came first, at most so many, and returns them in order.
func (q *queue[T]) take(most int) []queued[T] {
	taken := make([]queued[T], 0, min(most, q.len))
	for len(taken) < cap(taken) {
		id, known, _ := q.oldest()
		taken = append(taken, queued[T]{known, id})
		q.remove(id)
	}
	return taken
}
