package session

import (
	"cmp"
	"slices"
)

// pile gathers items, each once. However often the same item is added while nothing can be sent,
// the pile stays about as large as the number of different items (H-12).
type pile[T cmp.Ordered] struct {
	items []T
	limit int // the number of items beyond which duplicates are dropped
}

func (p *pile[T]) add(items ...T) {
	p.items = append(p.items, items...)
	if len(p.items) > p.limit {
		p.items = distinct(p.items)
		p.limit = 2 * len(p.items)
	}
}

// give adds items whose slice the caller no longer uses.
func (p *pile[T]) give(items []T) {
	if p.items == nil {
		p.items, items = items, nil
	}
	p.add(items...)
}

// drop removes some items, which are given in order.
func (p *pile[T]) drop(items []T) {
	p.items = slices.DeleteFunc(p.items, func(item T) bool {
		_, found := slices.BinarySearch(items, item)
		return found
	})
}

// take empties the pile and returns its items, each once and in order.
func (p *pile[T]) take() []T {
	items := distinct(p.items)
	p.items = nil
	return items
}

func (p *pile[T]) len() int { return len(p.items) }

// distinct sorts items and drops duplicates.
func distinct[T cmp.Ordered](items []T) []T {
	slices.Sort(items)
	return slices.Compact(items)
}
