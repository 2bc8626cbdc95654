package hop

import (
	"cmp"
	"slices"
	"strings"
)

// Ways are the ways on which clients of a group have come through other relays,
// each with the number of clients, so that the group's own streams can tell
// (NODE-11). A stream is shared, and says the longest of them: in a loop each
// relay's way would be longer than the one before it, all the way round, so that one
// of them meets its own id or the limit.
type Ways map[string]int

// Join notes a client, Leave that it has gone.
func (w Ways) Join(via []string) {
	if len(via) > 0 {
		w[strings.Join(via, mark)]++
	}
}

// Leave undoes Join.
func (w Ways) Leave(via []string) {
	way := strings.Join(via, mark)
	if w[way]--; w[way] <= 0 {
		delete(w, way)
	}
}

// Longest is the longest way; of equally long ones always the same.
func (w Ways) Longest() (via []string) {
	for way := range w {
		other := strings.Split(way, mark)
		if c := cmp.Compare(len(other), len(via)); c > 0 || c == 0 && slices.Compare(other, via) < 0 {
			via = other
		}
	}
	return via
}
