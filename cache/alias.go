package cache

import "slices"

// related is what few names have: ties to other names through aliases.
type related struct {
	// matches are the resources that list this name as an alias.
	matches []ID
	// negative denies this name (NAME-6).
	negative *Resource
	// lost are resources that answered to this name and no longer do (NAME-5).
	lost []Lost
}

// Lost is a resource that a name no longer leads to.
type Lost struct {
	Name string
	Seq  Seq
}

// maxLost bounds how many former matches a name remembers.
const maxLost = 64

func (m *related) lose(name string, seq Seq) {
	if n := len(m.lost); n >= maxLost {
		m.lost = m.lost[n-maxLost+1:]
	}
	m.lost = append(m.lost, Lost{Name: name, Seq: seq})
}

// answered dates what was lost without a date.
func (m *related) answered(seq Seq) {
	if m == nil {
		return
	}
	for i := range m.lost {
		if m.lost[i].Seq == 0 {
			m.lost[i].Seq = seq
		}
	}
}

func (m *related) regain(name string) {
	m.lost = slices.DeleteFunc(m.lost, func(l Lost) bool { return l.Name == name })
}

// Lose notes that a name no longer leads to a resource that it led to through
// another Table, or that was forgotten (NAME-5). With no seq, that counts from the
// name's next answer on: until then it is not known what it leads to.
func (t *Table) Lose(id ID, name string, seq Seq) {
	e := &t.entries[id]
	if e.more == nil {
		e.more = &related{}
	}
	e.more.lose(name, seq)
}

// match ties an alias to a resource that lists it.
func (t *Table) match(alias string, id ID, seq Seq, touched []ID) []ID {
	a := t.id(alias)
	if a == id {
		return touched
	}
	e := &t.entries[a]
	if e.more == nil {
		e.more = &related{}
	}
	e.more.negative = nil
	if e.vanished && len(e.more.matches) == 0 {
		e.more.lose(alias, e.seq) // others answer from now on, and not everybody may know that it went
	}
	if !slices.Contains(e.more.matches, id) {
		e.more.matches = append(e.more.matches, id)
	}
	e.more.regain(t.entries[id].name)
	e.more.answered(seq)
	return append(touched, a)
}

// unmatch unties an alias from a resource that no longer lists it. When nothing
// answers to the alias any more, it is Absent (NAME-5, NAME-7).
func (t *Table) unmatch(alias string, id ID, seq Seq, touched []ID) []ID {
	a, ok := t.ids[alias]
	if !ok || a == id {
		return touched
	}
	e := &t.entries[a]
	e.more.matches = without(e.more.matches, id)
	if !e.pinned {
		t.release(a)
		return touched
	}
	e.more.answered(seq)
	e.more.lose(t.entries[id].name, seq)
	if len(e.more.matches) == 0 && e.state == Unknown {
		e.state, e.cause, e.seq = Absent, Removed, seq
	}
	return append(touched, a)
}

func without(ids []ID, id ID) []ID {
	if i := slices.Index(ids, id); i >= 0 {
		return slices.Delete(ids, i, i+1)
	}
	return ids
}
