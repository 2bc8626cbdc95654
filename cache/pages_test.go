package cache

import "testing"

// TestPages: elements keep their places and values, whether the list grows by one or by pages, and those beyond the
// first page do not move.
func TestPages(t *testing.T) {
	for _, step := range []int{1, 7, pageSize - 1, pageSize, pageSize + 1, 5 * pageSize} {
		var l Pages[int]
		var pinned *int
		for want := 0; want < 3*pageSize; {
			l.Grow(want - step) // nothing to do
			l.Grow(want + step)
			if l.Len() != want+step {
				t.Fatalf("by %d: %d elements, want %d", step, l.Len(), want+step)
			}
			for ; want < l.Len(); want++ {
				if *l.At(want) != 0 {
					t.Fatalf("by %d: element %d is %d before it is set", step, want, *l.At(want))
				}
				*l.At(want) = want + 1
			}
			if pinned == nil && want > pageSize {
				pinned = l.At(pageSize)
			}
		}
		for i := range l.Len() {
			if *l.At(i) != i+1 {
				t.Fatalf("by %d: element %d is %d", step, i, *l.At(i))
			}
		}
		if pinned != l.At(pageSize) {
			t.Errorf("by %d: the second page has moved", step)
		}
	}
}
