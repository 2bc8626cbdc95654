package cache

// Run is the state of looking up many names, one after the other. Clients mostly name what
// others have named before, in the same order, so that each name stands behind the one before
// it. So the next is tried there first, and searched for if it is not there.
type Run struct{ last ID }

// FindNext is Find, of the next name of a Run.
func (t *Table) FindNext(r *Run, name string) (ID, bool) {
	if next := int(r.last) + 1; next < t.entries.Len() {
		if e := t.at(ID(next)); e.used && e.name == name {
			r.last++
			return r.last, true
		}
	}
	id, ok := t.ids[name]
	if ok {
		r.last = id
	}
	return id, ok
}

// InternNext is Intern, of the next name of a Run.
func (t *Table) InternNext(r *Run, name string) ID {
	id, ok := t.FindNext(r, name)
	if !ok {
		id = t.add(name)
		r.last = id
	}
	if e := t.at(id); !e.pinned {
		e.pinned = true
		t.pins++
	}
	return id
}
