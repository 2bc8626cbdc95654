package fanout

import (
	"slices"

	"github.com/xds-relay/xds-relay/cache"
)

// loans are the resources that the wildcard's set lends to names whose own lane has not answered,
// and that it leaves to them when the wildcard is given up (WILD-11, WILD-16).
type loans struct {
	x *index
	// inherited are the names whose copy is from a wildcard that was given up, until upstream has
	// answered them. The value is true if the set was only restored.
	inherited map[string]bool
	// unasked are those for which upstream was not asked since.
	unasked map[string]struct{}
}

// lentTo returns the names that a member of the wildcard's set is lent to, lingering ones included.
// A name that the member lists twice is there twice.
func (l *loans) lentTo(member string) (to []cache.ID) {
	r := l.x.wildcard.Bearer(member)
	if r == nil {
		return nil
	}
	for name := range r.Names() {
		if id, ok := l.x.named.Find(name); ok && l.x.desired(id) && l.x.answers.borrows(id) {
			to = append(to, id)
		}
	}
	return to
}

// distinct sorts IDs and drops repeated ones.
func distinct(ids []cache.ID) []cache.ID {
	slices.Sort(ids)
	return slices.Compact(ids)
}

// leaveAll leaves to names what the wildcard, which is given up, has lent to them. Upstream is
// asked for them once more, and they go when it has been silent for too long (WILD-11). What was
// restored and not confirmed stays so. A resource whose own name upstream has answered is left to
// nobody.
func (l *loans) leaveAll() {
	type lentCopy struct {
		*cache.Resource
		borrowers []cache.ID
	}
	var copies []lentCopy // collected first: a name that has inherited one no longer borrows others
	for r := range l.x.wildcard.All() {
		lent := distinct(l.lentTo(r.Name))
		for _, id := range lent { // what lingers inherits nothing, and may be known to be gone (UP-7)
			l.x.linger.changes(id)
		}
		if borrowers := slices.DeleteFunc(lent, func(id cache.ID) bool { return !l.x.interest.wants(id) }); len(borrowers) > 0 {
			copies = append(copies, lentCopy{r.Resource, borrowers})
		}
	}
	for _, e := range copies {
		if id, ok := l.x.named.Find(e.Name); ok && l.x.named.State(id) != cache.Unknown && !l.x.answers.borrows(id) { // it has its own answer
			l.x.markNamed(e.borrowers)
			continue
		}
		l.inherit(e.Resource, e.borrowers)
	}
}

// inherit leaves a resource to names, which are in order, with what is left of its TTL.
func (l *loans) inherit(r *cache.Resource, borrowers []cache.ID) {
	answered, _ := l.x.named.Set(r, "", l.x.next())
	l.x.named.LeaseAs(r.Name, &l.x.wildcard.Table)
	for _, id := range answered {
		if _, borrower := slices.BinarySearch(borrowers, id); !borrower { // the resource was not lent to this name
			l.x.marks.mark(id, content)
		}
	}
	if own, _ := l.x.named.Find(r.Name); len(answered) > 0 {
		member, _ := l.x.wildcard.Find(r.Name)
		l.x.named.Date(own, l.x.wildcard.Seq(member)) // its clients were sent it then, if at all
	}
	l.x.named.Unconfirm(r.Name) // upstream has given it no version on this lane
	for _, id := range borrowers {
		l.bequeath(id, l.x.restored.set)
	}
}

// bequeath notes that a name has inherited its copy, and is to be asked for again.
func (l *loans) bequeath(to cache.ID, restored bool) {
	name := l.x.named.Name(to)
	l.inherited[name], l.unasked[name] = restored, struct{}{}
	l.x.changed(to).inherited = true
}

// join has a name that is wanted inherit the resources that it leads to, if others have inherited all
// of them: upstream's silence from before, when nobody wanted it, does not count.
func (l *loans) join(id cache.ID, name string) {
	if len(l.inherited) == 0 || l.has(name) {
		return
	}
	led := l.x.named.Answer(id).Resources()
	if len(led) == 0 || slices.ContainsFunc(led, func(r *cache.Resource) bool { return !l.inherits(r.Name) }) {
		return
	}
	l.bequeath(id, slices.ContainsFunc(led, l.x.restored.resource))
}

// inherits reports whether a resource is here only because a wildcard that was given up had it
// (WILD-11).
func (l *loans) inherits(name string) bool {
	r := l.x.named.Bearer(name)
	return r != nil && goesBy(r, l.has)
}

// has reports whether a name's copy is from a wildcard that was given up.
func (l *loans) has(name string) bool {
	_, has := l.inherited[name]
	return has
}

// asked notes that upstream was asked for names.
func (l *loans) asked(names []string) {
	for _, name := range names {
		delete(l.unasked, name)
	}
}

// outliveSilence reports whether upstream's silence about a name says nothing of what others have
// inherited, or the name itself: it was asked for before, or was given up.
func (l *loans) outliveSilence(name string, id cache.ID) bool {
	_, unasked := l.unasked[name]
	return unasked || l.inherits(name) && !l.has(name) && !l.x.interest.wants(id)
}

// dropInherited drops the copies that a name has inherited, except those that other names have
// inherited, too, and the resource of, which upstream has just answered. Clients may have been kept
// waiting for the answer, because of what they came with, and are marked.
func (l *loans) dropInherited(name, of string) {
	if !l.has(name) {
		return
	}
	id, _ := l.x.named.Find(name)
	l.x.marks.mark(id, recheck)
	delete(l.inherited, name)
	delete(l.unasked, name)
	for _, r := range l.x.named.Answer(id).Resources() {
		if own, _ := l.x.named.Find(r.Name); r.Name != of && !l.inherits(r.Name) {
			l.unset(own)
		}
	}
}

// unset drops the copy that bears a name, and marks all names that led to it.
func (l *loans) unset(own cache.ID) {
	for name := range l.x.named.Own(own).Names() {
		if id, ok := l.x.named.Find(name); ok {
			l.x.marks.mark(id, content)
		}
	}
	bears := l.x.named.Name(own)
	limited := l.x.named.Expires(bears)
	l.x.named.Unset(own, l.x.next())
	l.fallBack(bears, limited)
}

// fallBack marks the names to which a member of the wildcard's set is lent, because there is no
// resource of that name on their own lane now. Their clients are sent its TTL if either copy has one.
func (l *loans) fallBack(member string, limited bool) {
	l.markFreed(member)
	still := l.x.wildcard.Expires(member)
	if !limited && !still || len(l.lentTo(member)) == 0 {
		return // whoever asks for the wildcard alone has it as it is
	}
	if !still {
		l.x.wildcard.LoseTTL(member, l.x.next())
	}
	l.x.wildcard.markRenewed(l.x.wildcard.Bearer(member), renewed)
}

// markFreed marks the names to which a member of the wildcard's set is lent: clients may take it
// from there now, because their names no longer lead to a resource of that name on their own lane
// (WILD-16).
func (l *loans) markFreed(member string) {
	if l.x.wildcard.Aliased() > 0 {
		l.x.markNamed(l.lentTo(member))
	}
}

// freed returns the names of a client to which members are lent now because it has given up other
// names.
func (l *loans) freed(s *Subscription, given []cache.ID) (freed []cache.ID) {
	if l.x.wildcard.Aliased() == 0 || len(s.names.ids) == 0 {
		return nil
	}
	v, led := s.view(), make(map[string]struct{})
	for _, id := range given {
		for _, r := range l.x.named.Answer(id).Resources() {
			led[r.Name] = struct{}{}
		}
	}
	for name := range led {
		if !v.s.owns(name) {
			freed = append(freed, l.lentTo(name)...)
		}
	}
	return slices.DeleteFunc(distinct(freed), func(id cache.ID) bool { return !v.Has(id) })
}

// markUnlent marks a name for the clients to which the wildcard lends nothing by it, because they
// have that resource by another name.
func (l *loans) markUnlent(id cache.ID) {
	for _, s := range l.x.interest.of(id) {
		if s.view().Answer(id).State == cache.Absent {
			l.x.marks.markOne(s, id, content)
		}
	}
}

// Answer returns what a subscribed name leads to. A resource that another of the client's names has
// on its own lane is not lent: a client takes each resource from one Table, or it would change back
// and forth between two versions (WILD-16).
func (v View) Answer(id cache.ID) cache.Answer {
	a := v.x.named.Answer(id)
	if a.State == cache.Present {
		return a // the name does not borrow
	}
	b := v.x.answers.borrowed(id)
	if b.State != cache.Present {
		return a
	}
	for i := len(b.More) - 1; i >= 0; i-- {
		if v.s.owns(b.More[i].Name) {
			b.More, b.MoreSeqs = slices.Delete(b.More, i, i+1), slices.Delete(b.MoreSeqs, i, i+1)
		}
	}
	if v.s.owns(b.Resource.Name) {
		if len(b.More) == 0 {
			return a
		}
		b.Resource, b.Seq, b.More, b.MoreSeqs = b.More[0], b.MoreSeqs[0], b.More[1:], b.MoreSeqs[1:]
	}
	// The client's last copy by this name vanished then, even if the member changed earlier.
	b.Seq, b.Error = max(b.Seq, v.x.named.Vanished(id)), a.Error
	return b
}

// Unanswered reports whether it is not yet known what a subscribed name leads to. What a wildcard has
// left to the client, or to others that ask for the same resource, may not be all of it.
func (v View) Unanswered(id cache.ID) bool {
	if a := v.x.named.Answer(id); len(v.x.loans.inherited) > 0 && a.State == cache.Present {
		return (a.Error == nil || !cache.Resolves(a.Error)) && slices.ContainsFunc(a.Resources(), func(r *cache.Resource) bool { return v.x.loans.inherits(r.Name) })
	}
	return !v.x.named.Answered(id) && v.Answer(id).State == cache.Unknown
}

// owns reports whether one of the client's names leads to a resource of this name on the lane of
// names.
func (s *Subscription) owns(name string) bool {
	r := s.index.named.Bearer(name)
	return r != nil && goesBy(r, func(asked string) bool {
		_, has := s.view().Lookup(asked)
		return has
	})
}
