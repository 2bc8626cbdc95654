package fanout

import (
	"slices"

	"github.com/xds-relay/xds-relay/cache"
)

// Told is what a client was told last of one of its names: at which position, and whether it
// has a copy since then. The zero value: nothing. It stands beside the name in the
// Subscription, so that it costs eight bytes and goes with the name.
type Told uint64

// Brought is what a client has that was told it on another stream.
const Brought Told = 1 << 63

// ToldCopy: the client was sent what a name leads to, in a response of this position.
func ToldCopy(at cache.Seq) Told { return Brought | Told(at) }

// ToldGone: the client was told that a name leads to nothing.
func ToldGone(at cache.Seq) Told { return Told(at) }

// Copy: the client has a copy.
func (t Told) Copy() bool { return t&Brought != 0 }

// At is the position; 0: the client was told nothing on this stream.
func (t Told) At() cache.Seq { return cache.Seq(t &^ Brought) }

// Told is what the client was told last of a subscribed name.
func (v View) Told(id cache.ID) Told {
	if i, ok := slices.BinarySearch(v.s.ids, id); ok {
		return v.s.told[i]
	}
	return 0
}

// Tell notes what a response says to the client of a subscribed name.
func (v View) Tell(id cache.ID, told Told) {
	if i, ok := slices.BinarySearch(v.s.ids, id); ok {
		v.s.told[i] = told
	}
}

// TellAt does so of the name at a place in Names.
func (v View) TellAt(i int, told Told) { v.s.told[i] = told }

// subscribe adds names to the list.
func (s *Subscription) subscribe(ids []cache.ID) {
	added := slices.DeleteFunc(distinct(slices.Clone(ids)), func(id cache.ID) bool {
		_, had := slices.BinarySearch(s.ids, id)
		return had
	})
	if len(added) == 0 {
		return
	}
	s.unsum()
	i, j := len(s.ids)-1, len(added)-1
	s.ids = append(s.ids, added...)
	s.told = append(s.told, make([]Told, len(added))...)
	for at := len(s.ids) - 1; j >= 0; at-- { // from the end, so that nothing is overwritten
		if i >= 0 && s.ids[i] > added[j] {
			s.ids[at], s.told[at] = s.ids[i], s.told[i]
			i--
		} else {
			s.ids[at], s.told[at] = added[j], 0
			j--
		}
	}
}

// replace adds some names and takes others out, both in order. The list is as long as it needs
// to be.
func (s *Subscription) replace(added, gone []cache.ID) {
	if len(added)+len(gone) == 0 {
		return
	}
	ids, told := s.ids, s.told
	s.ids = make([]cache.ID, 0, len(ids)-len(gone)+len(added))
	s.told = make([]Told, 0, cap(s.ids))
	for i, id := range ids {
		if len(gone) > 0 && gone[0] == id {
			gone = gone[1:]
			continue
		}
		s.ids, s.told = append(s.ids, id), append(s.told, told[i])
	}
	s.subscribe(added)
	s.unsum()
}
