package cache

import (
	"iter"
	"slices"
)

// matches are the resources that list a name as an alias, in the order in which they began to
// list it. One name may have very many, which come and go together.
type matches struct {
	ids []ID // none: one that is gone
	at  map[ID]int
	len int
}

// fewMatches are so few that they are looked through.
const fewMatches = 8

func (m *matches) add(id ID) {
	if m.find(id) >= 0 {
		return
	}
	m.ids = append(m.ids, id)
	m.len++
	switch {
	case m.at != nil:
		m.at[id] = len(m.ids) - 1
	case len(m.ids) > fewMatches:
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
	if m.len--; m.len <= len(m.ids)/2 || m.at == nil {
		m.compact()
	}
}

// find is the place of an ID; -1: it is not there.
func (m *matches) find(id ID) int {
	if m.at != nil {
		if i, ok := m.at[id]; ok {
			return i
		}
		return -1
	}
	return slices.Index(m.ids, id)
}

func (m *matches) compact() {
	m.ids = slices.DeleteFunc(m.ids, func(id ID) bool { return id == none })
	if m.at = nil; len(m.ids) > fewMatches {
		m.index()
	}
}

func (m *matches) index() {
	m.at = make(map[ID]int, len(m.ids))
	for i, id := range m.ids {
		m.at[id] = i
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
