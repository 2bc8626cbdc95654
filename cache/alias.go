package cache

import (
	"iter"
	"slices"
)

// related are ties to other names through aliases and globs; few names have any.
type related struct {
	// matches are the resources that list this name as an alias.
	matches matches
	// members are those that it covers, if it is a glob (NAME-11).
	members *members
	// negative denies this name (NAME-6).
	negative *Resource
}

// matched reports whether a resource lists the name as an alias, or is covered by it.
func (e *entry) matched() bool {
	switch {
	case e.more == nil:
		return false
	case e.more.members != nil:
		return len(e.more.members.at) > 0
	}
	return len(e.more.matches.ids) > 0
}

// matches yields those resources.
func (e *entry) matches() iter.Seq[ID] {
	switch {
	case e.more == nil:
		return func(func(ID) bool) {}
	case e.more.members != nil:
		return e.more.members.all()
	}
	return e.more.matches.all()
}

// relate returns the entry's ties, and makes them if there are none.
func (e *entry) relate() *related {
	if e.more == nil {
		e.more = &related{}
	}
	return e.more
}

// remove unties the name from a resource.
func (r *related) remove(id ID) {
	if r.members != nil {
		r.members.remove(id)
	} else {
		r.matches.remove(id)
	}
}

// match ties an alias, or a glob, to a resource that has changed and lists it, or is covered by it.
func (t *Table) match(alias string, id ID, seq Seq) {
	a := t.id(alias)
	if a == id {
		return
	}
	e, was := t.at(a), t.Led(a)
	e.relate().negative, e.err = nil, nil
	if IsGlob(alias) {
		e.more.cover(id, seq)
	} else {
		e.more.matches.add(id)
	}
	t.turned(a, was)
	t.touched = append(t.touched, a)
}

// unmatch unties an alias, or a glob, from a resource that is gone or no longer lists it. When nothing answers to it
// any more, it is Absent (NAME-5, NAME-7), unless upstream has not been asked for it (what else answers
// to it, upstream need not have said, UP-8), or was only silent about the resource's name (the lane decides).
func (t *Table) unmatch(alias string, id ID, cause Cause, seq Seq) {
	a, ok := t.ids[alias]
	if !ok || a == id {
		return
	}
	e, was := t.at(a), t.Led(a)
	e.more.remove(id)
	if !e.pinned {
		t.release(a)
		return
	}
	if e.more.members != nil {
		e.more.members.leave(t.at(id).name, seq)
	}
	unanswered := e.asked && !e.matched() && e.state == Unknown
	switch {
	case cause == Timer:
	case unanswered:
		e.state, e.cause, e.seq = Absent, Removed, seq
	case e.cause == Timer:
		e.cause = Removed // an answer outweighs silence
	}
	t.turned(a, was)
	t.touched = append(t.touched, a)
}

// dropped are the aliases that a resource lists no more.
func dropped(before, now *Resource) []string {
	if len(before.Aliases) == 0 || slices.Equal(before.Aliases, now.Aliases) {
		return nil
	}
	still := make(map[string]struct{}, len(now.Aliases))
	for _, alias := range now.Aliases {
		still[alias] = struct{}{}
	}
	return slices.DeleteFunc(slices.Clone(before.Aliases), func(alias string) bool {
		_, listed := still[alias]
		return listed
	})
}

// recover ends the errors of other names that lead to a resource, since the resource answers them.
func (t *Table) recover(r *Resource) {
	for other := range r.others() {
		if a := t.ids[other]; t.at(a).err != nil {
			t.at(a).err, t.touched = nil, append(t.touched, a)
		}
	}
}
