package fanout

import (
	"fmt"
	"slices"

	"github.com/xds-relay/xds-relay/cache"
)

// Check says what does not hold of a client's interest that has to hold at any time, for tests and
// for people who look for a fault.
func (v View) Check() (broken []string) {
	s, x := v.s, v.x
	must := func(holds bool, format string, a ...any) {
		if !holds {
			broken = append(broken, fmt.Sprintf(format, a...))
		}
	}
	// There is one Told for each name, and the names are in order, each once.
	must(len(s.names.told) == len(s.names.ids), "%d names and %d that were told", len(s.names.ids), len(s.names.told))
	must(slices.IsSorted(s.names.ids) && len(slices.Compact(slices.Clone(s.names.ids))) == len(s.names.ids), "names are not in order: %v", s.names.ids)
	for i, id := range s.names.ids {
		// Nothing is told of what is yet to be.
		must(s.names.told[i].At() <= v.Position(), "%q was told at %d, and it is %d", v.Name(id), s.names.told[i].At(), v.Position())
		// Whoever subscribes to a name is told of its changes, and the name keeps its ID.
		interested := x.interest.has(s, id)
		must(interested && x.named.Pinned(v.Name(id)), "%q is subscribed to, and watched: %v, its ID kept: %v", v.Name(id), interested, x.named.Pinned(v.Name(id)))
	}
	// The same of the wildcard; who does not subscribe to it reads nothing of its set.
	interested := x.interest.has(s, wildcardID)
	must(interested == s.wildcard && (s.wildcard || !s.reads), "the wildcard is subscribed to: %v, watched: %v, read: %v", s.wildcard, interested, s.reads)
	// What a reader has not been told of is not forgotten.
	must(!s.reads || s.passed <= v.Position() && s.passed >= x.readers.pruned, "removals are told up to %d, forgotten up to %d, and it is %d", s.passed, x.readers.pruned, v.Position())
	// A sum is that of what bears the names.
	if s.summed {
		var sum cache.Digest
		for _, id := range s.names.ids {
			if r := x.named.Own(id); r != nil {
				sum.Add(r)
			}
		}
		must(sum == s.sum, "the digest of the names is %v, and should be %v", s.sum, sum)
	}
	// What is handed over has a body, under its own name.
	for name, p := range s.parcels {
		must(p.Resource != nil && p.Name == name && !p.Husk(), "%q is to be handed over, and there is no body", name)
	}
	return broken
}
