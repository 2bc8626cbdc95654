package cache

import (
	"iter"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
)

// Leads yields all resources to which a name leads: the one that bears it, those that list it as an alias,
// and those that it covers.
func (t *Table) Leads(id ID) iter.Seq[*Resource] {
	return func(yield func(*Resource) bool) {
		e := t.at(id)
		if e.resource != nil && !yield(e.resource) || e.more == nil {
			return
		}
		for m := range e.matches() {
			if !yield(t.at(m).resource) {
				return
			}
		}
	}
}

// Answered: the name is Present, or Absent, or a resource answers to it as an alias.
func (t *Table) Answered(id ID) bool { return t.Led(id) != Unknown }

// Led is the state of the name, by itself and as an alias: the State of its Answer.
func (t *Table) Led(id ID) State {
	if e := t.at(id); !e.matched() {
		return e.state
	}
	return Present
}

// Answer is the resource, or resources, to which a name leads.
type Answer struct {
	State State
	Cause Cause
	// Resource answers to the name: the one that bears it, or the first that
	// lists it as an alias. More are all others (NAME-7). Of a glob there is none: see Members and Leads.
	Resource *Resource
	More     []*Resource
	// Seq is when Resource last changed, or if there is none the name; MoreSeqs are More's.
	Seq      Seq
	MoreSeqs []Seq
	// Negative is upstream's denial of an alias, which clients get as it came.
	Negative *Resource
	// Error lies over the name, whatever its State.
	Error *statuspb.Status
}

// Resources are all that answer to the name.
func (a Answer) Resources() []*Resource {
	if a.Resource == nil {
		return nil
	}
	return append([]*Resource{a.Resource}, a.More...) // mostly one, for which nothing is allocated
}

// Own is the one among them that bears a name, and when it last changed; nil: none does.
func (a Answer) Own(name string) (*Resource, Seq) {
	if a.Resource == nil || a.Resource.Name == name {
		return a.Resource, a.Seq
	}
	for i, r := range a.More {
		if r.Name == name {
			return r, a.MoreSeqs[i]
		}
	}
	return nil, 0
}

// Changed is when the one at a place among Resources last changed.
func (a Answer) Changed(i int) Seq {
	if i == 0 {
		return a.Seq
	}
	return a.MoreSeqs[i-1]
}

// Answer looks a name up, by itself and as an alias (NAME-3).
func (t *Table) Answer(id ID) Answer {
	e := t.at(id)
	a := Answer{State: e.state, Cause: e.cause, Resource: e.resource, Error: e.err, Seq: e.seq}
	if e.more == nil {
		return a
	}
	a.Negative = e.more.negative
	if m := e.more.members; m != nil {
		if a.Seq = max(a.Seq, m.changed()); len(m.at) > 0 {
			a.State, a.Cause = Present, 0
		}
		return a
	}
	for m := range e.more.matches.all() {
		a.State, a.Cause = Present, 0
		if e := t.at(m); a.Resource == nil {
			a.Resource, a.Seq = e.resource, e.seq
		} else {
			a.More, a.MoreSeqs = append(a.More, e.resource), append(a.MoreSeqs, e.seq)
		}
	}
	return a
}

// Bare is Answer without aliases. A name to which only others answer is Absent: upstream has spoken of
// it, and has nothing of that name.
func (t *Table) Bare(id ID) Answer {
	e := t.at(id)
	a := Answer{State: e.state, Cause: e.cause, Resource: e.resource, Error: e.err, Seq: e.seq}
	if a.State == Unknown && e.matched() {
		a.State, a.Cause = Absent, Removed
	}
	return a
}

// Vanished is when the resource that bore a name went, if none does since; 0: there was none.
func (t *Table) Vanished(id ID) Seq {
	if e := t.at(id); e.vanished && e.state != Present {
		return e.seq
	}
	return 0
}
