package cache

const (
	pageBits = 10
	pageSize = 1 << pageBits // elements
)

// Pages is a list that grows without being copied as a whole: it may be so long that all who wait for the lock under
// which it grows would feel that. Up to the end of the first page it is as small as a slice. The zero value is empty.
type Pages[T any] struct {
	pages [][]T
	n     int
}

// Len is the number of elements.
func (l *Pages[T]) Len() int { return l.n }

// At is where an element is, until Grow: those of the first page may move then.
func (l *Pages[T]) At(i int) *T { return &l.pages[i>>pageBits][i&(pageSize-1)] }

// Grow adds zero elements at the end, so that there are at least n.
func (l *Pages[T]) Grow(n int) {
	for l.n < n {
		last := len(l.pages) - 1
		switch {
		case last < 0:
			l.pages = append(l.pages, nil)
			continue
		case len(l.pages[last]) == pageSize:
			l.pages = append(l.pages, make([]T, 0, pageSize))
			last++
		}
		page := &l.pages[last]
		was := len(*page)
		*page = append(*page, make([]T, min(n-l.n, pageSize-was))...)
		l.n += len(*page) - was
	}
}
