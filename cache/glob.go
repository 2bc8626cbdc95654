package cache

import (
	"iter"
	"slices"
)

// To the Table a glob is an alias of what it covers, which no resource has to list (NAME-11). A glob may have very
// many members, so a client that was sent some needs a way to find those that have changed since.

// members are the resources that a glob covers.
type members struct {
	// order has them in order of last change. One that has changed again, or has left, keeps its place without an ID.
	order []member
	at    map[ID]int // the places in order
	// left are those that have left, in order, as long as somebody holds the glob's ID. Those that had left by the
	// position forgotten may be missing.
	left      []Change
	forgotten Seq
}

type member struct {
	id  ID
	seq Seq
}

// mostLeft is how many members that have left are remembered beside as many as there are now.
const mostLeft = 64

// cover notes that a resource which the name covers has changed.
func (r *related) cover(id ID, seq Seq) {
	if r.members == nil {
		r.members = &members{at: make(map[ID]int)}
	}
	m := r.members
	m.remove(id)
	m.at[id] = len(m.order)
	m.order = append(m.order, member{id, seq})
}

func (m *members) remove(id ID) {
	i, ok := m.at[id]
	if !ok {
		return
	}
	delete(m.at, id)
	m.order[i].id = none
	if len(m.order) < fewMatches || len(m.at) > len(m.order)/2 {
		return
	}
	m.order = slices.DeleteFunc(m.order, func(e member) bool { return e.id == none })
	for i, e := range m.order {
		m.at[e.id] = i
	}
}

// leave remembers that a member has left.
func (m *members) leave(name string, seq Seq) {
	m.left = append(m.left, Change{Name: name, Seq: seq})
	if n := len(m.left) / 2; len(m.left) > len(m.at)+mostLeft {
		m.forgotten = m.left[n-1].Seq
		m.left = slices.Clone(m.left[n:])
	}
}

func (m *members) all() iter.Seq[ID] {
	return func(yield func(ID) bool) {
		for _, e := range m.order {
			if e.id != none && !yield(e.id) {
				return
			}
		}
	}
}

// Members yields the members of a glob that have changed after a position, latest first.
func (t *Table) Members(glob ID, after Seq) iter.Seq[Change] {
	return func(yield func(Change) bool) {
		m := t.members(glob)
		for _, e := range slices.Backward(m.order) {
			if e.seq <= after {
				return
			}
			if of := t.at(e.id); e.id != none && !yield(Change{of.name, of.resource, e.seq}) {
				return
			}
		}
	}
}

// Left yields the names that have left a glob after a position, latest first, whether or not they are back.
// all is false if some may be missing.
func (t *Table) Left(glob ID, after Seq) (names iter.Seq[string], all bool) {
	m := t.members(glob)
	return func(yield func(string) bool) {
		for _, c := range slices.Backward(m.left) {
			if c.Seq <= after || !yield(c.Name) {
				return
			}
		}
	}, after >= m.forgotten
}

func (t *Table) members(glob ID) *members {
	if e := t.at(glob); e.more != nil && e.more.members != nil {
		return e.more.members
	}
	return new(members)
}

// changed is when the latest member changed or left.
func (m *members) changed() (at Seq) {
	if n := len(m.order); n > 0 {
		at = m.order[n-1].seq
	}
	if n := len(m.left); n > 0 {
		at = max(at, m.left[n-1].Seq)
	}
	return at
}
