package fanout

import (
	"cmp"
	"iter"
	"slices"

	"github.com/xds-relay/xds-relay/cache"
)

// interest is who subscribes to what of a type: to which name, or to the wildcard, which has an ID
// that is no name's.
type interest struct {
	by [][]*Subscription // by ID, ascending by subscription number

	names         int // that somebody subscribes to
	subscriptions int // that are open
	withheld      int // of those, the ones from which something is withheld
	summed        int // and those that know the digest of their names
	last          uint64
}

// open counts another subscription, and returns its number.
func (i *interest) open() (number uint64) {
	i.subscriptions++
	i.last++
	return i.last
}

// of lists the subscriptions to a name, or to the wildcard.
func (i *interest) of(id cache.ID) []*Subscription {
	if int(id) >= len(i.by) {
		return nil
	}
	return i.by[id]
}

// wants: somebody subscribes to it.
func (i *interest) wants(id cache.ID) bool { return len(i.of(id)) > 0 }

// has: one subscribes to it.
func (i *interest) has(s *Subscription, id cache.ID) bool {
	_, has := search(i.of(id), s)
	return has
}

// named yields the names that somebody subscribes to, by ID, and who does.
func (i *interest) named() iter.Seq2[cache.ID, []*Subscription] {
	return func(yield func(cache.ID, []*Subscription) bool) {
		for id, subs := range i.by {
			if id := cache.ID(id); id != wildcardID && len(subs) > 0 && !yield(id, subs) {
				return
			}
		}
	}
}

// wildcard yields the same of the wildcard.
func (i *interest) wildcard() iter.Seq2[cache.ID, []*Subscription] {
	return func(yield func(cache.ID, []*Subscription) bool) {
		if subs := i.of(wildcardID); len(subs) > 0 {
			yield(wildcardID, subs)
		}
	}
}

// add notes that one subscribes to it; first: nobody else does.
func (i *interest) add(s *Subscription, id cache.ID) (first bool) {
	if most := int(id) + 1; most > len(i.by) {
		i.by = slices.Grow(i.by, most-len(i.by))[:most]
	}
	at, found := search(i.by[id], s)
	if found {
		return false
	}
	i.by[id] = slices.Insert(i.by[id], at, s)
	if first = len(i.by[id]) == 1; first && id != wildcardID {
		i.names++
	}
	return first
}

// remove notes that one does not subscribe to it any more; last: nobody does now.
func (i *interest) remove(s *Subscription, id cache.ID) (last bool) {
	at, found := search(i.of(id), s)
	if !found {
		return false
	}
	i.by[id] = slices.Delete(i.by[id], at, at+1)
	if last = len(i.by[id]) == 0; last {
		i.by[id] = nil
		if id != wildcardID {
			i.names--
		}
	}
	return last
}

// search finds the place of a subscription in a list, which is in order of number.
func search(subs []*Subscription, s *Subscription) (int, bool) {
	if n := len(subs); n > 0 && subs[n-1].number < s.number {
		return n, false // newcomers come last
	}
	return slices.BinarySearchFunc(subs, s.number, func(e *Subscription, n uint64) int { return cmp.Compare(e.number, n) })
}
