package session

import (
	"slices"

	"github.com/xds-relay/xds-relay/fanout"
)

// named has the names of one SotW request. A client repeats all names with each ACK, mostly in
// the same order, so they are sorted only if they differ. The difference to the last request is
// computed here, and not under the lock of the type.
type named struct {
	fanout.Names
	listed  []string // each once, in the request's order if it has no duplicates
	changed bool     // they differ from those of the request before
}

// list takes in the names of a request.
func (s *sotwState) list(names []string) named {
	n := named{listed: s.names}
	if !slices.Equal(names, s.names) {
		sorted := distinct(slices.Clone(names))
		if n.listed = sorted; len(sorted) == len(names) && !slices.Equal(sorted, names) {
			n.listed = slices.Clone(names)
		}
		before := distinct(slices.Clone(s.names))
		if n.changed = !slices.Equal(sorted, before); n.changed {
			n.Added, n.Gone = missingFrom(sorted, before), missingFrom(before, sorted)
		}
	}
	n.Some, n.Wildcard = len(n.listed) > 0, slices.Contains(n.listed, fanout.Wildcard)
	return n
}

// missingFrom returns the names that the others lack; both are sorted. The wildcard does not
// count as a name.
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
