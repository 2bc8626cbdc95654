package fanout

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/xds-relay/xds-relay/cache"
)

// Check returns the invariants of a client's interest that do not hold, for tests and for people
// who look for a fault.
func (v View) Check() (broken []string) {
	s, x := v.s, v.x
	broken = x.check()
	must := func(holds bool, format string, a ...any) { note(&broken, holds, format, a...) }
	// There is one Told for each name, and the names are in order, each once.
	must(len(s.names.told) == len(s.names.ids), "%d names and %d that were told", len(s.names.ids), len(s.names.told))
	must(slices.IsSorted(s.names.ids) && len(slices.Compact(slices.Clone(s.names.ids))) == len(s.names.ids), "names are not in order: %v", s.names.ids)
	for i, id := range s.names.ids {
		// Nothing was sent at a position that is still to come.
		must(s.names.told[i].At() <= v.Position(), "%q was told at %d, and it is %d", v.Name(id), s.names.told[i].At(), v.Position())
		// A client is marked for the names that it subscribes to, and these names keep their IDs.
		interested := x.interest.has(s, id)
		must(interested && x.named.Pinned(v.Name(id)), "%q is subscribed to, and watched: %v, its ID kept: %v", v.Name(id), interested, x.named.Pinned(v.Name(id)))
	}
	// The same holds for the wildcard. A client that does not subscribe to it is no reader of its
	// set.
	interested := x.interest.has(s, wildcardID)
	must(interested == s.wildcard && (s.wildcard || !s.reads), "the wildcard is subscribed to: %v, watched: %v, read: %v", s.wildcard, interested, s.reads)
	// A removal that a reader has not been sent is not forgotten.
	must(!s.reads || s.passed <= v.Position() && s.passed >= x.readers.pruned, "removals are told up to %d, forgotten up to %d, and it is %d", s.passed, x.readers.pruned, v.Position())
	// The digest is that of the resources that bear the names.
	if s.summed {
		var sum cache.Digest
		for _, id := range s.names.ids {
			if r := x.named.Own(id); r != nil {
				sum.Add(r)
			}
		}
		must(sum == s.sum, "the digest of the names is %v, and should be %v", s.sum, sum)
	}
	return broken
}

// check returns the invariants of a type that do not hold, whoever its clients are.
func (x *index) check() (broken []string) {
	must := func(holds bool, format string, a ...any) { note(&broken, holds, format, a...) }
	names := 0
	for id, subs := range x.interest.named() {
		names++
		// Subscriptions are in the order in which they were opened, each once, and only to names
		// that have an ID.
		must(slices.IsSortedFunc(subs, func(a, b *Subscription) int { return cmp.Compare(a.number, b.number) }), "subscriptions to %q are not in order", x.named.Name(id))
		must(x.named.Pinned(x.named.Name(id)), "%q is subscribed to, and its ID not kept", x.named.Name(id))
	}
	must(x.noted == x.notes() || x.hub.keepsAll.Load(), "the agenda has %+v, and should have %+v", x.noted, x.notes())
	must(names == x.interest.names, "%d names are subscribed to, and %d counted", names, x.interest.names)
	// Only open subscriptions are counted.
	i := &x.interest
	held := 0
	for _, n := range i.holders {
		held += n
	}
	must(i.holders == nil || held == i.subscriptions, "%d subscriptions, of which %d have a holder", i.subscriptions, held)
	must(i.withheld <= i.subscriptions, "%d subscriptions, of which %d have something withheld", i.subscriptions, i.withheld)
	// Nobody subscribes to a name that lingers.
	for id := range x.linger.all() {
		must(!i.wants(id), "the name %d lingers, and is subscribed to", id)
	}
	// A set that nobody wants is empty and not complete; a set that somebody wants has not been
	// given up.
	w := &x.wildcard
	bare := w.Len() == 0 && !w.synced
	must(!w.restored || !w.certain(), "the set is certain, and counts as restored")
	must(w.pinned || bare && !i.wants(wildcardID), "a wildcard that was given up has %d members, and is complete: %v", w.Len(), w.synced)
	return slices.Concat(broken, x.named.check(), w.check())
}

func (l *lane) check() (broken []string) {
	for id := range l.dirty.all() {
		// A name in dirty keeps its ID.
		note(&broken, id == wildcardID || l.Pinned(l.Name(id)), "the name %d is to be looked at, and its ID not kept", id)
	}
	return broken
}

func note(broken *[]string, holds bool, format string, a ...any) {
	if !holds {
		*broken = append(*broken, fmt.Sprintf(format, a...))
	}
}
