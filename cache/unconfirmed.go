package cache

import (
	"slices"
	"time"
)

// A resource that was loaded from disk is unconfirmed until upstream has spoken of it, or been silent
// where silence means that nothing has changed (RECON-19). An announcement or a removal confirms it
// by itself; of silence the owner of the Table decides.

// unconfirmed are the ages of what is unconfirmed in a Table: entries refer to them by place plus one.
// They are few, one for each time that a relay process began without an answer.
type unconfirmed struct {
	ages  []time.Time
	count int
}

// Restore makes the resource that bears a name unconfirmed: it is known as of a time only.
func (t *Table) Restore(name string, asOf time.Time) {
	id, ok := t.ids[name]
	if !ok || t.at(id).state != Present {
		return
	}
	t.Confirm(id)
	u := &t.unconfirmed
	i := slices.Index(u.ages, asOf)
	if i < 0 {
		i, u.ages = len(u.ages), append(u.ages, asOf)
	}
	t.at(id).age = uint32(i) + 1
	u.count++
}

// Confirm notes that upstream agrees with the resource that bears a name. It reports whether that is
// news.
func (t *Table) Confirm(id ID) (news bool) {
	e := t.at(id)
	if e.age == 0 {
		return false
	}
	e.age = 0
	if t.unconfirmed.count--; t.unconfirmed.count == 0 {
		t.unconfirmed.ages = nil
	}
	return true
}

// AnyUnconfirmed reports whether anything in the Table is unconfirmed.
func (t *Table) AnyUnconfirmed() bool { return t.unconfirmed.count > 0 }

// AnswerAge is Age of the first unconfirmed resource that a name leads to, by itself or as an alias.
func (t *Table) AnswerAge(id ID) (asOf time.Time, unconfirmed bool) {
	if !t.AnyUnconfirmed() {
		return time.Time{}, false
	}
	for r := range t.Leads(id) {
		if asOf, unconfirmed = t.Age(r.Name); unconfirmed {
			break
		}
	}
	return asOf, unconfirmed
}

// Age returns as of when the resource that bears a name is known, if it is unconfirmed.
func (t *Table) Age(name string) (asOf time.Time, unconfirmed bool) {
	if id, ok := t.ids[name]; ok && t.at(id).age > 0 {
		return t.unconfirmed.ages[t.at(id).age-1], true
	}
	return time.Time{}, false
}
