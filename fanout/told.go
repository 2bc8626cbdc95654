package fanout

import (
	"slices"

	"github.com/xds-relay/xds-relay/cache"
)

// Told is what the client was last sent for one of its names: at which position, and whether it has
// a copy since then. The zero value: nothing. It stands beside the name in the Subscription, so it
// costs eight bytes and ends with the name.
type Told uint64

// again is set beside what the client was sent (SendAgain).
const again Told = 1 << 62

// Brought: the client came with a copy from an earlier stream. Its position on this one is 0.
const Brought Told = 1 << 63

// ToldCopy: the client was sent what a name leads to, in a response at this position.
func ToldCopy(at cache.Seq) Told { return Brought | Told(at) }

// ToldGone: the client was told at this position that a name leads to nothing.
func ToldGone(at cache.Seq) Told { return Told(at) }

// Copy reports whether the client has a copy.
func (t Told) Copy() bool { return t&Brought != 0 }

// FromBefore reports whether the client came with a copy, and was sent nothing for the name since.
func (t Told) FromBefore() bool { return t&^again == Brought }

// Again reports whether the client is to be sent what the name resolves to, or that it is gone,
// whatever it holds (ORDER-4).
func (t Told) Again() bool { return t&again != 0 }

// At returns the position; 0: the client was sent nothing for the name on this stream.
func (t Told) At() cache.Seq { return cache.Seq(t &^ (Brought | again)) }

// NameList is the list of names that a client subscribes to on one stream, with what it was sent
// for each.
type NameList struct {
	ids  []cache.ID // ascending
	told []Told     // one for each ID
	last int        // the place in ids that was last looked at
}

// Names returns the subscribed names, ascending by ID.
func (l *NameList) Names() []cache.ID { return l.ids }

// Has reports whether an ID stands for a subscribed name.
func (l *NameList) Has(id cache.ID) bool {
	_, ok := l.place(id)
	return ok
}

// Told returns what the client was last sent for a subscribed name.
func (l *NameList) Told(id cache.ID) Told {
	if i, ok := l.place(id); ok {
		return l.told[i]
	}
	return 0
}

// Tell notes what a response sends the client for a subscribed name.
func (l *NameList) Tell(id cache.ID, told Told) {
	if i, ok := l.place(id); ok {
		l.told[i] = told
	}
}

// SendAgain notes that what a subscribed name resolves to is to be sent whatever the client holds.
// Tell and Sent end this.
func (l *NameList) SendAgain(id cache.ID) {
	if i, ok := l.place(id); ok {
		l.told[i] |= again
	}
}

// Sent notes that it was sent, although not as the answer to the name.
func (l *NameList) Sent(id cache.ID) {
	if i, ok := l.place(id); ok {
		l.told[i] &^= again
	}
}

// place returns where a subscribed name stands in the lists. Names are mostly looked up in order,
// so it tries the last place and the next one first.
func (l *NameList) place(id cache.ID) (at int, ok bool) {
	for at = l.last; at < len(l.ids) && at <= l.last+1; at++ {
		if l.ids[at] == id {
			l.last = at
			return at, true
		}
	}
	if at, ok = slices.BinarySearch(l.ids, id); ok {
		l.last = at
	}
	return at, ok
}

// add adds names to the list. some reports whether any of them is new.
func (l *NameList) add(ids []cache.ID) (some bool) {
	if len(l.ids) == 0 && len(ids) > 0 {
		l.ids = distinct(slices.Clone(ids))
		l.told = make([]Told, len(l.ids))
		return true
	}
	added := slices.DeleteFunc(distinct(slices.Clone(ids)), func(id cache.ID) bool {
		_, had := l.place(id)
		return had
	})
	if len(added) == 0 {
		return false
	}
	i, j := len(l.ids)-1, len(added)-1
	l.ids = append(l.ids, added...)
	l.told = append(l.told, make([]Told, len(added))...)
	for at := len(l.ids) - 1; j >= 0; at-- { // from the end, so that nothing is overwritten
		if i >= 0 && l.ids[i] > added[j] {
			l.move(i, at)
			i--
		} else {
			l.ids[at] = added[j]
			l.told[at] = 0
			j--
		}
	}
	return true
}

// remove takes names out of the list. They are all in it, and in the same order.
func (l *NameList) remove(ids []cache.ID) {
	kept := 0
	for at, id := range l.ids {
		if len(ids) > 0 && ids[0] == id {
			ids = ids[1:]
			continue
		}
		l.move(at, kept)
		kept++
	}
	l.ids, l.told = cut(l.ids, kept), cut(l.told, kept)
}

func (l *NameList) move(from, to int) {
	l.ids[to], l.told[to] = l.ids[from], l.told[from]
}

// distinct sorts IDs and drops repeated ones.
func distinct(ids []cache.ID) []cache.ID {
	slices.Sort(ids)
	return slices.Compact(ids)
}

// cut shortens a list, and gives back memory that it no longer needs.
func cut[T any](list []T, to int) []T {
	switch clear(list[to:]); {
	case to == 0:
		return nil
	case to < len(list)/2:
		return slices.Clone(list[:to])
	}
	return list[:to]
}
