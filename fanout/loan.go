package fanout

import (
	"iter"

	"github.com/xds-relay/xds-relay/cache"
)

// What the wildcard's copy lends to names whose own lane has not answered
// (WILD-11, WILD-16). A client stores a resource under its own name, but may have
// asked for an alias: when an alias no longer leads to what it was lent, the client
// is to be told by the resource's name (NAME-5).

// loan is a resource that a name is lent.
type loan struct {
	to     cache.ID
	member string
}

// loans are what some names are lent.
func (x *index) loans(to iter.Seq[string]) (loans []loan) {
	if x.wildcard.Len() == 0 {
		return nil
	}
	for name := range to {
		id, ok := x.named.Find(name)
		if !ok || !x.named.Pinned(name) || !x.borrows(id) {
			continue
		}
		if a := x.answer(id); a.Resource != nil {
			loans = append(loans, loan{id, a.Resource.Name})
			for _, r := range a.More {
				loans = append(loans, loan{id, r.Name})
			}
		}
	}
	return loans
}

// loansOf are the names that a member of the wildcard's set is lent to.
func (x *index) loansOf(member string) (loans []loan) {
	w, ok := x.wildcard.Find(member)
	if !ok || x.wildcard.Own(w) == nil {
		return nil
	}
	for name := range names(x.wildcard.Own(w)) {
		if id, ok := x.named.Find(name); ok && x.named.Pinned(name) && x.borrows(id) {
			loans = append(loans, loan{id, member})
		}
	}
	return loans
}

// repay notes which of the names no longer lead to what they were lent. by is a
// name of which they are told anyway.
func (x *index) repay(loans []loan, by string, seq cache.Seq) {
	for _, l := range loans {
		seq := seq
		if l.member == by || x.leadsTo(l.to, l.member) {
			continue
		}
		if l.member == x.named.Name(l.to) && x.answer(l.to).State != cache.Present {
			seq = 0 // not known to be gone; told when something else comes in its place
		}
		x.named.Lose(l.to, l.member, seq)
		x.markContent(l.to)
	}
}

// leadsTo reports whether a resource of that name answers to a name.
func (x *index) leadsTo(id cache.ID, name string) bool {
	a := x.answer(id)
	if a.Resource != nil && a.Resource.Name == name {
		return true
	}
	for _, r := range a.More {
		if r.Name == name {
			return true
		}
	}
	return false
}
