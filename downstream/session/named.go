package session

import "slices"

// named are the names of one SotW request. With each ACK a client says all of them again, mostly
// in the same order as before, so that they are put into order only if they differ.
type named struct {
	listed []string // each once, as they came if nothing came twice
	// changed: they are others than those of the request before; sorted are they, and before
	// those, in order, if they may be others.
	changed        bool
	sorted, before []string
}

// list takes in what a request lists.
func (s *sotwState) list(names []string) named {
	if slices.Equal(names, s.names) {
		return named{listed: s.names}
	}
	n := named{sorted: distinct(slices.Clone(names)), before: s.names}
	if n.listed = n.sorted; len(n.sorted) == len(names) && !slices.Equal(n.sorted, names) {
		n.listed = slices.Clone(names)
	}
	if !slices.IsSorted(n.before) {
		n.before = slices.Sorted(slices.Values(n.before))
	}
	n.changed = !slices.Equal(n.sorted, n.before)
	return n
}
