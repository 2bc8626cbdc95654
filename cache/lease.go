package cache

import (
	"container/heap"
	"container/list"
	"iter"
	"slices"
	"time"
)

// lease is the time until which a resource with a TTL stays, unless upstream renews
// it (TTL-1), or says when upstream last renewed what clients drop by themselves (TTL-13).
// Other resources have none, and cost nothing.
type lease struct {
	id ID
	// ends is when the resource expires; zero: it had a TTL, and has none now.
	ends  time.Time
	place int // in leases.due
	// renewed counts the receipt that last renewed, gave or took the TTL; turned
	// the one that last gave or took it; repeated the last one that brought the content
	// again of a resource that goes stale, which renews it, too.
	renewed, turned, repeated Seq
	order                     *list.Element // in leases.order
}

// leases are those of a Table. The zero value is none.
type leases struct {
	of    map[ID]*lease
	due   dueFirst
	order list.List // by renewed, oldest first
}

// Lease notes the TTL with which a Present name came at a time, or that it came
// with none (TTL-1). renewed: the content stayed what it was, and clients that know
// TTLs are to be told (TTL-4, TTL-12).
func (t *Table) Lease(name string, ttl time.Duration, at time.Time, seq Seq) (renewed bool) {
	if ttl <= 0 {
		return t.LeaseUntil(name, time.Time{}, seq)
	}
	return t.LeaseUntil(name, at.Add(ttl), seq)
}

// LeaseUntil is Lease with the time at which the TTL ends; zero: there is none.
func (t *Table) LeaseUntil(name string, ends time.Time, seq Seq) (renewed bool) {
	id, ok := t.ids[name]
	if !ok || t.at(id).state != Present {
		return false
	}
	changed := t.at(id).seq == seq
	if changed {
		t.unlease(id) // who is told the change is told the TTL
	}
	before, turned, _ := t.Ends(id)
	if before.IsZero() && ends.IsZero() {
		return false
	}
	if before.IsZero() != ends.IsZero() {
		turned = seq
	}
	t.grant(id, ends, turned, seq)
	return !changed
}

// Repeat notes that upstream has sent the content of a Present name again. renewed: it is not
// new, and clients are to be sent it again, since they drop it otherwise (TTL-13).
func (t *Table) Repeat(name string, seq Seq) (renewed bool) {
	id := t.ids[name]
	r := t.at(id).resource
	if r == nil || !r.GoesStale {
		return false
	}
	if t.at(id).seq == seq {
		return false // it is new
	}
	ends, turned, _ := t.Ends(id)
	t.grant(id, ends, turned, seq)
	t.leases.of[id].repeated = seq
	return true
}

// LeaseAs gives a Present name the lease that it has in another Table, as clients know it
// from there. Like Date, it is not for a Table that is read in order (Renewed).
func (t *Table) LeaseAs(name string, other *Table) {
	if l := other.leases.of[other.ids[name]]; l != nil {
		t.grant(t.ids[name], l.ends, l.turned, l.renewed)
		t.leases.of[t.ids[name]].repeated = l.repeated
	}
}

// LoseTTL notes that a Present name has no TTL now, and that clients had it with one.
func (t *Table) LoseTTL(name string, seq Seq) {
	t.grant(t.ids[name], time.Time{}, seq, seq)
}

// HadTTL reports whether the resource that bears a name has, or has had, a TTL.
func (t *Table) HadTTL(name string) bool {
	_, turned, _ := t.Ends(t.ids[name])
	return turned > 0
}

// Expires reports whether the resource that bears a name has a TTL.
func (t *Table) Expires(name string) bool {
	ends, _, _ := t.Ends(t.ids[name])
	return !ends.IsZero()
}

// grant changes the lease of a name, or makes one; the parameters are what Ends returns of it.
func (t *Table) grant(id ID, ends time.Time, turned, renewed Seq) {
	l := t.leases.of[id]
	if l == nil {
		l = &lease{id: id, place: -1}
		l.order = t.leases.order.PushBack(l)
		if t.leases.of == nil {
			t.leases.of = make(map[ID]*lease)
		}
		t.leases.of[id] = l
	}
	l.ends, l.turned, l.renewed = ends, turned, renewed
	t.leases.order.MoveToBack(l.order)
	t.leases.schedule(l)
}

// unlease forgets the TTL of a resource that goes, or changes.
func (t *Table) unlease(id ID) {
	if l := t.leases.of[id]; l != nil {
		l.ends = time.Time{}
		t.leases.schedule(l)
		t.leases.order.Remove(l.order)
		delete(t.leases.of, id)
	}
}

// Ends is when a resource expires; zero: never. turned is the position of the receipt that last
// gave it a TTL or took it away, renewed that of the last one that did so or renewed it.
func (t *Table) Ends(id ID) (ends time.Time, turned, renewed Seq) {
	if l := t.leases.of[id]; l != nil {
		return l.ends, l.turned, l.renewed
	}
	return time.Time{}, 0, 0
}

// Repeated is the position of the receipt that last repeated the content of a resource that goes
// stale, if that has not changed since (TTL-13).
func (t *Table) Repeated(id ID) Seq {
	if l := t.leases.of[id]; l != nil {
		return l.repeated
	}
	return 0
}

// Leased reports whether any resource has, or has ever had, a TTL, or a content that was repeated.
func (t *Table) Leased() bool { return t.leases.of != nil }

// Expiry is when the next resource expires; zero: none does.
func (t *Table) Expiry() time.Time {
	if len(t.leases.due) == 0 {
		return time.Time{}
	}
	return t.leases.due[0].ends
}

// Expired returns, once, the names whose time is up, in that order. They stay Present until Remove
// (TTL-2).
func (t *Table) Expired(now time.Time) (names []string) {
	for len(t.leases.due) > 0 && !t.leases.due[0].ends.After(now) {
		l := heap.Pop(&t.leases.due).(*lease)
		names = append(names, t.at(l.id).name)
	}
	return names
}

// Renewed yields the resources that were renewed, or whose TTL was given or taken, after a
// position, but which did not change with it, latest first.
func (t *Table) Renewed(after Seq) iter.Seq[Change] {
	return func(yield func(Change) bool) {
		for o := t.leases.order.Back(); o != nil; o = o.Prev() {
			l := o.Value.(*lease)
			e := t.at(l.id)
			if l.renewed <= after || l.renewed != e.seq && !yield(Change{e.name, e.resource, e.seq}) {
				return
			}
		}
	}
}

// schedule puts a lease where it belongs among those that end.
func (s *leases) schedule(l *lease) {
	switch {
	case l.ends.IsZero() && l.place >= 0:
		heap.Remove(&s.due, l.place)
	case l.ends.IsZero():
	case l.place >= 0:
		heap.Fix(&s.due, l.place)
	default:
		heap.Push(&s.due, l)
	}
}

// dueFirst is a heap: what expires next comes first.
type dueFirst []*lease

func (d dueFirst) Len() int           { return len(d) }
func (d dueFirst) Less(i, j int) bool { return d[i].ends.Before(d[j].ends) }
func (d dueFirst) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].place, d[j].place = i, j
}

// Push implements heap.Interface.
func (d *dueFirst) Push(x any) {
	l := x.(*lease)
	l.place = len(*d)
	*d = append(*d, l)
}

// Pop implements heap.Interface.
func (d *dueFirst) Pop() any {
	last := len(*d) - 1
	l := (*d)[last]
	l.place = -1
	*d = slices.Delete(*d, last, last+1) // which clears the slot
	return l
}
