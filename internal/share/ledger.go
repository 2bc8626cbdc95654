package share

import (
	"container/heap"
	"fmt"
)

// Ledger counts what the holders of one total have. The zero value is empty. It is not safe for concurrent
// use. Each call takes time that grows with the logarithm of the number of holders.
type Ledger[V any] struct {
	used    int // by all entries
	exempt  int // the part of it that exempt entries have
	holders map[string]*holder[V]
	largest byAmount[V] // by what they keep if their first entry goes
}

// holder is somebody who has something.
type holder[V any] struct {
	name string
	has  int
	at   int // in Ledger.largest
	// Its entries: those that nobody would miss, and the others.
	renounced, kept line[V]
}

// line has entries in the order in which they came.
type line[V any] struct{ oldest, newest *Entry[V] }

// Entry is what has a part of the total: a connection of the connections, or a stream of the names.
type Entry[V any] struct {
	// Value is for whoever made the entry.
	Value V

	name   string
	exempt bool
	gone   bool // it was displaced or has left, and gets nothing any more
	has    int

	renounced bool

	// While it has something and is not exempt:
	of           *holder[V]
	older, newer *Entry[V]
}

// Enter returns an entry that has nothing yet. One that is exempt is never displaced, and counts as
// if its holder had nothing.
func (l *Ledger[V]) Enter(name string, exempt bool, v V) *Entry[V] {
	return &Entry[V]{Value: v, name: name, exempt: exempt}
}

// Take gives an entry n more of a total of most, or as many as it may have; most 0 is no bound. What is displaced
// for that has nothing any more, and its holder keeps at least what this entry's holder then has, so that the two do
// not displace each other for ever. may, unless it is nil, says whether an entry may be displaced: if it keeps the one
// that would go first, nothing is displaced.
func (l *Ledger[V]) Take(e *Entry[V], n, most int, may func(V) bool) (got int, displaced []V) {
	got, out := l.makeRoom(e, n, most, may)
	l.add(e, got)
	return got, values(out)
}

// TakeAll gives an entry n more, like Take, or else nothing: then nothing is displaced.
func (l *Ledger[V]) TakeAll(e *Entry[V], n, most int) (ok bool, displaced []V) {
	got, out := l.makeRoom(e, n, most, nil)
	if got < n {
		for i := len(out) - 1; i >= 0; i-- { // so each is the newest of its line again
			out[i].entry.gone = false
			l.add(out[i].entry, out[i].had)
		}
		return false, nil
	}
	l.add(e, n)
	return true, values(out)
}

// loss is an entry that was displaced, and what it had.
type loss[V any] struct {
	entry *Entry[V]
	had   int
}

func values[V any](out []loss[V]) (all []V) {
	for _, o := range out {
		all = append(all, o.entry.Value)
	}
	return all
}

// makeRoom displaces what has to go so that an entry gets n more, or as many as it may have.
func (l *Ledger[V]) makeRoom(e *Entry[V], n, most int, may func(V) bool) (got int, out []loss[V]) {
	if e.gone || n <= 0 {
		return 0, nil
	}
	if most == 0 {
		return n, nil
	}
	has := 0
	if h := l.holders[e.name]; h != nil && !e.exempt {
		has = h.has
	}
	got = max(0, min(n, most-l.used))
	for len(l.largest) > 0 {
		of := l.largest[0]
		least := of.first()
		fair := min(n, most-l.used+least.has, of.keeps()-has)
		if fair <= got || may != nil && !may(least.Value) {
			break
		}
		got, out = fair, append(out, loss[V]{least, least.has})
		l.Leave(least)
	}
	return got, out
}

// Give takes back n of what an entry has.
func (l *Ledger[V]) Give(e *Entry[V], n int) { l.add(e, -min(n, e.has)) }

// Leave takes back all that an entry has. It gets nothing any more.
func (l *Ledger[V]) Leave(e *Entry[V]) {
	l.Give(e, e.has)
	e.gone = true
}

// Move puts an entry under another holder, as its newest, when more is known of who has it.
func (l *Ledger[V]) Move(e *Entry[V], name string, exempt bool) {
	if e.name == name && e.exempt == exempt {
		return
	}
	has := e.has
	l.Give(e, has)
	e.name, e.exempt = name, exempt
	l.add(e, has)
}

// Holder returns who has the entry, and whether it is exempt.
func (e *Entry[V]) Holder() (name string, exempt bool) { return e.name, e.exempt }

// Renounce makes an entry one of the first of its holder's to be displaced, because nobody would miss it, or ends that.
func (l *Ledger[V]) Renounce(e *Entry[V], renounced bool) {
	if e.renounced == renounced {
		return
	}
	h := e.of
	if h != nil {
		h.unlink(e)
	}
	if e.renounced = renounced; h != nil {
		h.link(e)
		heap.Fix(&l.largest, h.at)
	}
}

// Oldest returns the oldest entry of an entry's holder other than itself, among those that are not renounced, or
// nil; of one that is exempt, nil.
func (l *Ledger[V]) Oldest(e *Entry[V]) *Entry[V] {
	h := l.holders[e.name]
	switch {
	case h == nil || e.exempt:
		return nil
	case h.kept.oldest == e:
		return e.newer
	}
	return h.kept.oldest
}

// Used is how much of the total is taken, and Holders how many have some of it, beside those who are exempt.
func (l *Ledger[V]) Used() int { return l.used }

// Holders counts those who have something, without those who are exempt.
func (l *Ledger[V]) Holders() int { return len(l.holders) }

// add changes what an entry has.
func (l *Ledger[V]) add(e *Entry[V], n int) {
	if n == 0 {
		return
	}
	l.used += n
	e.has += n
	if e.exempt {
		l.exempt += n
		return
	}
	h := e.of
	if h == nil {
		h = l.holder(e.name)
		h.link(e)
	}
	if h.has += n; e.has == 0 {
		h.unlink(e)
	}
	if h.has > 0 {
		heap.Fix(&l.largest, h.at)
		return
	}
	heap.Remove(&l.largest, h.at)
	delete(l.holders, h.name)
}

// holder returns the holder of a name, which is made if it has nothing yet.
func (l *Ledger[V]) holder(name string) *holder[V] {
	h := l.holders[name]
	if h == nil {
		if l.holders == nil {
			l.holders = make(map[string]*holder[V])
		}
		h = &holder[V]{name: name}
		l.holders[name] = h
		heap.Push(&l.largest, h)
	}
	return h
}

// first returns the entry that would be displaced first, or nil if there is none.
func (h *holder[V]) first() *Entry[V] {
	if e := h.renounced.newest; e != nil {
		return e
	}
	return h.kept.newest
}

// keeps is what a holder would have without that entry.
func (h *holder[V]) keeps() int {
	if e := h.first(); e != nil {
		return h.has - e.has
	}
	return 0
}

// lineOf returns the line in which an entry stands.
func (h *holder[V]) lineOf(e *Entry[V]) *line[V] {
	if e.renounced {
		return &h.renounced
	}
	return &h.kept
}

// link adds an entry as the newest of its line.
func (h *holder[V]) link(e *Entry[V]) {
	in := h.lineOf(e)
	e.of, e.older = h, in.newest
	if in.newest != nil {
		in.newest.newer = e
	} else {
		in.oldest = e
	}
	in.newest = e
}

func (h *holder[V]) unlink(e *Entry[V]) {
	in := h.lineOf(e)
	if e.older != nil {
		e.older.newer = e.newer
	} else {
		in.oldest = e.newer
	}
	if e.newer != nil {
		e.newer.older = e.older
	} else {
		in.newest = e.older
	}
	e.of, e.older, e.newer = nil, nil, nil
}

// byAmount is a heap with the holder first that would keep most.
type byAmount[V any] []*holder[V]

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (b byAmount[V]) Len() int           { return len(b) }
func (b byAmount[V]) Less(i, j int) bool { return b[i].keeps() > b[j].keeps() }
func (b byAmount[V]) Swap(i, j int) {
	b[i], b[j] = b[j], b[i]
	b[i].at, b[j].at = i, j
}

func (b *byAmount[V]) Push(x any) {
	h, _ := x.(*holder[V])
	h.at = len(*b)
	*b = append(*b, h)
}

func (b *byAmount[V]) Pop() any {
	last := (*b)[len(*b)-1]
	(*b)[len(*b)-1] = nil
	*b = (*b)[:len(*b)-1]
	return last
}

// Check returns the invariants that do not hold. They must hold at any time.
func (l *Ledger[V]) Check() (broken []string) {
	must := func(holds bool, format string, args ...any) {
		if !holds {
			broken = append(broken, fmt.Sprintf(format, args...))
		}
	}
	sum := l.exempt
	must(len(l.holders) == len(l.largest), "%d holders are known, and %d in order", len(l.holders), len(l.largest))
	for i, h := range l.largest {
		must(h.at == i && l.holders[h.name] == h, "holder %q is at %d, and says %d", h.name, i, h.at)
		must(i == 0 || l.largest[(i-1)/2].keeps() >= h.keeps(), "holder %q would keep more than one before it", h.name)
		sum += h.has
		has := 0
		for _, in := range []*line[V]{&h.renounced, &h.kept} {
			last := (*Entry[V])(nil)
			for e := in.oldest; e != nil; e = e.newer {
				must(e.of == h && e.older == last && e.name == h.name && h.lineOf(e) == in, "an entry of %q is not its own", h.name)
				must(e.has > 0 && !e.gone && !e.exempt, "an entry of %q has %d, gone: %v, exempt: %v", h.name, e.has, e.gone, e.exempt)
				has, last = has+e.has, e
			}
			must(in.newest == last, "an entry of %q is lost", h.name)
		}
		must(h.has == has && has > 0, "holder %q has %d, its entries %d", h.name, h.has, has)
	}
	must(sum == l.used, "%d are used, and the holders have %d", l.used, sum)
	return broken
}
