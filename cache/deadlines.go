package cache

import (
	"container/heap"
	"time"
)

// Deadlines says of which of many things the time comes first. Setting a time takes log n steps, and
// nothing looks at the others. The zero value is empty.
type Deadlines[K comparable] struct {
	heap deadlineHeap[K]
}

// Set sets the time of a thing; the zero time takes it out.
func (d *Deadlines[K]) Set(of K, at time.Time) {
	i, has := d.heap.at[of]
	switch {
	case has && at.IsZero():
		heap.Remove(&d.heap, i)
	case has:
		d.heap.all[i].at = at
		heap.Fix(&d.heap, i)
	case !at.IsZero():
		if d.heap.at == nil {
			d.heap.at = make(map[K]int)
		}
		heap.Push(&d.heap, deadline[K]{of, at})
	}
}

// First returns the earliest time, and whose it is; zero: there is none.
func (d *Deadlines[K]) First() (of K, at time.Time) {
	if len(d.heap.all) > 0 {
		return d.heap.all[0].of, d.heap.all[0].at
	}
	return of, at
}

// Of returns the time of a thing, or zero.
func (d *Deadlines[K]) Of(of K) (at time.Time) {
	if i, has := d.heap.at[of]; has {
		return d.heap.all[i].at
	}
	return at
}

// Due takes out the things whose time has come, and returns them.
func (d *Deadlines[K]) Due(now time.Time) (due []K) {
	for {
		of, at := d.First()
		if at.IsZero() || at.After(now) {
			return due
		}
		due = append(due, of)
		d.Set(of, time.Time{})
	}
}

type deadline[K comparable] struct {
	of K
	at time.Time
}

type deadlineHeap[K comparable] struct {
	all []deadline[K]
	at  map[K]int // the place of each
}

func (h *deadlineHeap[K]) Len() int           { return len(h.all) }
func (h *deadlineHeap[K]) Less(i, j int) bool { return h.all[i].at.Before(h.all[j].at) }
func (h *deadlineHeap[K]) Swap(i, j int) {
	h.all[i], h.all[j] = h.all[j], h.all[i]
	h.at[h.all[i].of], h.at[h.all[j].of] = i, j
}

// Push is for container/heap.
func (h *deadlineHeap[K]) Push(x any) {
	e := x.(deadline[K])
	h.at[e.of] = len(h.all)
	h.all = append(h.all, e)
}

// Pop is for container/heap.
func (h *deadlineHeap[K]) Pop() any {
	last := h.all[len(h.all)-1]
	h.all = h.all[:len(h.all)-1]
	delete(h.at, last.of)
	return last
}
