package session

import (
	"cmp"
	"slices"
)

// pile gathers what a client is to be told, each thing once. However often the
// same is added while nothing can be sent, it stays about as large as what is
// different in it (H-12).
type pile[T cmp.Ordered] struct {
	items []T
	limit int // the items are made distinct when there are more
}

func (p *pile[T]) add(items ...T) {
	p.items = append(p.items, items...)
	if len(p.items) > p.limit {
		p.items = distinct(p.items)
		p.limit = 2 * len(p.items)
	}
}

// give adds items that nobody else has a use for.
func (p *pile[T]) give(items []T) {
	if p.items == nil {
		p.items, items = items, nil
	}
	p.add(items...)
}

// drop takes some out, which are given in order.
func (p *pile[T]) drop(items []T) {
	p.items = slices.DeleteFunc(p.items, func(item T) bool {
		_, found := slices.BinarySearch(items, item)
		return found
	})
}

// take empties the pile: its items, each once and in order.
func (p *pile[T]) take() []T {
	items := distinct(p.items)
	p.items = nil
	return items
}

func (p *pile[T]) len() int { return len(p.items) }

// distinct sorts and drops repetitions.
func distinct[T cmp.Ordered](items []T) []T {
	slices.Sort(items)
	return slices.Compact(items)
}
