package fanout

import (
	"slices"

	"github.com/xds-relay/xds-relay/cache"
)

// Told is what a client was told last of one of its names: at which position, and whether it
// has a copy since then. The zero value: nothing. It stands beside the name in the
// Subscription, so that it costs eight bytes and goes with the name.
type Told uint64

// Brought: the client came with a copy from an earlier stream. Its position on this one is 0.
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
	if i, ok := v.s.place(id); ok {
		return v.s.told[i]
	}
	return 0
}

// Tell notes what a response says to the client of a subscribed name.
func (v View) Tell(id cache.ID, told Told) {
	if i, ok := v.s.place(id); ok {
		v.s.told[i] = told
	}
}

// TellAt does so of the name at a place in Names.
func (v View) TellAt(i int, told Told) { v.s.told[i] = told }

// LedTo are the resources that a subscribed name was said to lead to; nil: simply the one that
// bears the name, if any. The session's record says which of them still count.
func (v View) LedTo(id cache.ID) []string {
	if v.s.led == nil {
		return nil
	}
	if i, ok := v.s.place(id); ok {
		return v.s.led[i]
	}
	return nil
}

// Lead notes what a subscribed name is said to lead to. Most clients ask for no aliases, and so
// have no list of this.
func (v View) Lead(id cache.ID, to []string) {
	if v.s.led == nil && to != nil {
		v.s.led = make([][]string, len(v.s.ids))
	}
	if i, ok := v.s.place(id); ok && v.s.led != nil {
		v.s.led[i] = to
	}
}

// place is where a subscribed name stands in the lists. Names are mostly looked at in order, so
// that it is that of the last one, or the next.
func (s *Subscription) place(id cache.ID) (at int, ok bool) {
	for at = s.last; at < len(s.ids) && at <= s.last+1; at++ {
		if s.ids[at] == id {
			s.last = at
			return at, true
		}
	}
	if at, ok = slices.BinarySearch(s.ids, id); ok {
		s.last = at
	}
	return at, ok
}

// subscribe adds names to the list.
func (s *Subscription) subscribe(ids []cache.ID) {
	added := slices.DeleteFunc(distinct(slices.Clone(ids)), func(id cache.ID) bool {
		_, had := s.place(id)
		return had
	})
	if len(added) == 0 {
		return
	}
	s.unsum()
	i, j := len(s.ids)-1, len(added)-1
	s.ids = append(s.ids, added...)
	s.told = append(s.told, make([]Told, len(added))...)
	if s.led != nil {
		s.led = append(s.led, make([][]string, len(added))...)
	}
	for at := len(s.ids) - 1; j >= 0; at-- { // from the end, so that nothing is overwritten
		if i >= 0 && s.ids[i] > added[j] {
			s.move(i, at)
			i--
		} else {
			s.ids[at] = added[j]
			s.told[at] = 0
			if s.led != nil {
				s.led[at] = nil
			}
			j--
		}
	}
}

// keep takes those names out of the list that are not at a place of which it is true.
func (s *Subscription) keep(which func(at int) bool) {
	s.unsum()
	kept := 0
	for at := range s.ids {
		if which(at) {
			s.move(at, kept)
			kept++
		}
	}
	s.ids, s.told = cut(s.ids, kept), cut(s.told, kept)
	if s.led != nil {
		s.led = cut(s.led, kept)
	}
}

func (s *Subscription) move(from, to int) {
	s.ids[to], s.told[to] = s.ids[from], s.told[from]
	if s.led != nil {
		s.led[to] = s.led[from]
	}
}

// cut shortens a list, which gives back the memory that it does not need any more.
func cut[T any](list []T, to int) []T {
	switch clear(list[to:]); {
	case to == 0:
		return nil
	case to < len(list)/2:
		return slices.Clone(list[:to])
	}
	return list[:to]
}
