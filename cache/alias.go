package cache

import "slices"

// related is what few names have: ties to other names through aliases.
type related struct {
	// matches are the resources that list this name as an alias.
	matches []ID
	// negative denies this name (NAME-6).
	negative *Resource
}

// match ties an alias to a resource that lists it.
func (t *Table) match(alias string, id ID, touched []ID) []ID {
	a := t.id(alias)
	if a == id {
		return touched
	}
	e := &t.entries[a]
	if e.more == nil {
		e.more = &related{}
	}
	e.more.negative = nil
	if !slices.Contains(e.more.matches, id) {
		e.more.matches = append(e.more.matches, id)
	}
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
