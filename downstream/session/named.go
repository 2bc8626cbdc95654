package session

import (
	"slices"

	"github.com/xds-relay/xds-relay/fanout"
)

// named are the names of one SotW request. With each ACK a client says all of them again, mostly
// in the same order as before, so that they are put into order only if they differ. What is new is
// found here, and not under the lock of the type.
type named struct {
	fanout.Names
	listed  []string // each once, as they came if nothing came twice
	sorted  []string // the same in order, if they may be others than those of the request before
	changed bool     // they are
}

// list takes in what a request lists.
func (s *sotwState) list(names []string) named {
	n := named{listed: s.names}
	if !slices.Equal(names, s.names) {
		n.sorted = distinct(slices.Clone(names))
		if n.listed = n.sorted; len(n.sorted) == len(names) && !slices.Equal(n.sorted, names) {
			n.listed = slices.Clone(names)
		}
		before := s.names
		if !slices.IsSorted(before) {
			before = slices.Sorted(slices.Values(before))
		}
		if n.changed = !slices.Equal(n.sorted, before); n.changed {
			n.Added, n.Gone = missingFrom(n.sorted, before), missingFrom(before, n.sorted)
		}
	}
	n.Some, n.Wildcard = len(n.listed) > 0, slices.Contains(n.listed, fanout.Wildcard)
	return n
}

// missingFrom are those of the names that the others lack; both are in order. The wildcard is no
// name.
func missingFrom(names, others []string) (missing []string) {
	for _, name := range names {
		for len(others) > 0 && others[0] < name {
			others = others[1:]
		}
		if (len(others) == 0 || others[0] != name) && name != fanout.Wildcard {
			missing = append(missing, name)
		}
	}
	return missing
}
