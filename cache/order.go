package cache

import "iter"

// touch moves a name to the end of the order of change.
func (t *Table) touch(id ID, seq Seq) {
	if t.at(id).ordered {
		t.unlink(id)
	}
	e := t.at(id)
	e.seq, e.ordered = seq, true
	e.prev, e.next = t.newest, none
	if t.newest != none {
		t.at(t.newest).next = id
	} else {
		t.oldest = id
	}
	t.newest = id
	t.length++
}

func (t *Table) unlink(id ID) {
	e := t.at(id)
	if e.prev != none {
		t.at(e.prev).next = e.next
	} else {
		t.oldest = e.next
	}
	if e.next != none {
		t.at(e.next).prev = e.prev
	} else {
		t.newest = e.prev
	}
	e.prev, e.next, e.ordered = none, none, false
	t.length--
}

// Seq is when a name last changed.
func (t *Table) Seq(id ID) Seq { return t.at(id).seq }

// Change is one name's latest change: Resource is nil if it vanished.
type Change struct {
	Name     string
	Resource *Resource
	Seq      Seq
}

// Since yields what changed after a position, latest first. Since(0) is
// everything there is, tombstones included.
func (t *Table) Since(after Seq) iter.Seq[Change] {
	return func(yield func(Change) bool) {
		for id := t.newest; id != none; id = t.at(id).prev {
			e := t.at(id)
			if e.seq <= after || !yield(Change{e.name, e.resource, e.seq}) {
				return
			}
		}
	}
}

// Prune drops the tombstones up to a position that every reader has passed.
func (t *Table) Prune(upTo Seq) {
	for id := t.oldest; id != none && t.at(id).seq <= upTo; {
		next := t.at(id).next
		if e := t.at(id); e.state == Absent && !e.pinned {
			t.unlink(id)
			t.release(id)
		}
		id = next
	}
}
