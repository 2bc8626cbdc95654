package cache

// Run is the state of looking up many names, one after the other. Clients mostly name what
// others have named before, in the same order, so that each name stands behind the one before
// it. Where two have, the next is tried there first, and searched for if it is not there. In any
// other order a Run is Find.
type Run struct {
	last ID
	on   bool // last stands behind the one before it
}

// FindNext is Find, of the next name of a Run.
func (t *Table) FindNext(r *Run, name string) (ID, bool) {
	if next := int(r.last) + 1; r.on && next < len(t.entries) {
		if e := &t.entries[next]; e.used && e.name == name {
			r.last++
			return r.last, true
		}
	}
	id, ok := t.ids[name]
	r.found(id)
	return id, ok
}

func (r *Run) found(id ID) { r.on, r.last = id == r.last+1, id }

// InternNext is Intern, of the next name of a Run.
func (t *Table) InternNext(r *Run, name string) ID {
	before := r.last
	id, ok := t.FindNext(r, name)
	if !ok {
		id = t.add(name)
		r.last = before
		r.found(id)
	}
	t.pin(id)
	return id
}
