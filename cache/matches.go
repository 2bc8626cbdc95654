package cache

import (
	"iter"
	"slices"
)

// matches are the resources that list a name as an alias, in the order in which they began to
// list it. One name may have very many, which come and go together.
type matches struct {
	ids []ID       // none: one that is gone; there is at least one that is not, or ids is empty
	at  map[ID]int // the places in ids; nil while there are few, none of which is gone
}

// fewMatches are so few that they are looked through.
const fewMatches = 8

func (m *matches) add(id ID) {
	if m.find(id) >= 0 {
		return
	}
	m.ids = append(m.ids, id)
	if m.at != nil {
		m.at[id] = len(m.ids) - 1
	} else {
		m.index()
	}
}

func (m *matches) remove(id ID) {
	i := m.find(id)
	if i < 0 {
		return
	}
	m.ids[i] = none
	delete(m.at, id)
	if len(m.at) <= len(m.ids)/2 {
		m.ids = slices.DeleteFunc(m.ids, func(id ID) bool { return id == none })
		m.index()
	}
}

// find is the place of an ID; -1: it is not there.
func (m *matches) find(id ID) int {
	if m.at == nil {
		return slices.Index(m.ids, id)
	}
	if i, ok := m.at[id]; ok {
		return i
	}
	return -1
}

// index fills at if there are many matches, and drops it if there are few.
func (m *matches) index() {
	m.at = nil
	if len(m.ids) > fewMatches {
		m.at = make(map[ID]int, len(m.ids))
		for i, id := range m.ids {
			m.at[id] = i
		}
	}
}

func (m *matches) all() iter.Seq[ID] {
	return func(yield func(ID) bool) {
		for _, id := range m.ids {
			if id != none && !yield(id) {
				return
			}
		}
	}
}
