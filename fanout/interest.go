package fanout

import (
	"cmp"
	"iter"
	"slices"

	"github.com/xds-relay/xds-relay/cache"
)

// interest records who subscribes to what of a type: to which name, or to the wildcard, whose ID is
// no name's.
type interest struct {
	by cache.Pages[[]*Subscription] // by ID, ascending by subscription number
	// room is the rest of the array from which the lists of one or two are cut, since a client may
	// ask for tens of thousands of names at a time.
	room []*Subscription

	names         int    // that have a subscriber
	subscriptions int    // that are open
	withheld      int    // open ones from which something is withheld
	last          uint64 // the number of the latest subscription
	// holders counts the open subscriptions by holder; nil: of this type nobody asks for them.
	holders map[string]int
}

// open counts a subscription that is opened, and returns its number.
func (i *interest) open(holder string) (number uint64) {
	i.subscriptions++
	i.last++
	if i.holders != nil {
		i.holders[holder]++
	}
	return i.last
}

// close undoes open.
func (i *interest) close(holder string) {
	i.subscriptions--
	if i.holders == nil {
		return
	}
	if i.holders[holder]--; i.holders[holder] == 0 {
		delete(i.holders, holder)
	}
}

// of lists the subscriptions to a name, or to the wildcard.
func (i *interest) of(id cache.ID) []*Subscription {
	if int(id) >= i.by.Len() {
		return nil
	}
	return *i.by.At(int(id))
}

// wants reports whether anybody subscribes to a name, or to the wildcard.
func (i *interest) wants(id cache.ID) bool { return len(i.of(id)) > 0 }

// has reports whether a Subscription includes a name, or the wildcard.
func (i *interest) has(s *Subscription, id cache.ID) bool {
	_, has := search(i.of(id), s)
	return has
}

// named yields the names that have subscribers, by ID, with the subscribers.
func (i *interest) named() iter.Seq2[cache.ID, []*Subscription] {
	return func(yield func(cache.ID, []*Subscription) bool) {
		for id := range i.by.Len() {
			subs := *i.by.At(id)
			if id := cache.ID(id); id != wildcardID && len(subs) > 0 && !yield(id, subs) {
				return
			}
		}
	}
}

// add notes that a Subscription includes a name, or the wildcard. first reports whether it is the
// only one.
func (i *interest) add(s *Subscription, id cache.ID) (first bool) {
	i.by.Grow(int(id) + 1)
	subs := i.by.At(int(id))
	at, found := search(*subs, s)
	if found {
		return false
	}
	*subs = slices.Insert(i.grow(*subs), at, s)
	if first = len(*subs) == 1; first && id != wildcardID {
		i.names++
	}
	return first
}

// grow returns a list with room for one more, if it is short. An array lives for as long as one of
// the lists that were cut from it, so it is small, and keeps no Subscription that has left its list.
func (i *interest) grow(list []*Subscription) []*Subscription {
	n := len(list) + 1
	if n <= cap(list) || n > 2 {
		return list
	}
	if n > len(i.room) {
		i.room = make([]*Subscription, 64)
	}
	grown := append(i.room[:0:n], list...)
	i.room = i.room[n:]
	clear(list)
	return grown
}

// remove undoes add; had reports whether there was something to undo. last reports whether no
// Subscription includes it any more.
func (i *interest) remove(s *Subscription, id cache.ID) (last, had bool) {
	at, had := search(i.of(id), s)
	if !had {
		return false, false
	}
	subs := i.by.At(int(id))
	*subs = slices.Delete(*subs, at, at+1)
	if last = len(*subs) == 0; last {
		*subs = nil
		if id != wildcardID {
			i.names--
		}
	}
	return last, true
}

// search finds the place of a subscription in a list, which is ordered by number.
func search(subs []*Subscription, s *Subscription) (int, bool) {
	if n := len(subs); n > 0 && subs[n-1].number < s.number {
		return n, false // new subscriptions have the highest number
	}
	return slices.BinarySearchFunc(subs, s.number, func(e *Subscription, n uint64) int { return cmp.Compare(e.number, n) })
}
