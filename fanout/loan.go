package fanout

import (
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// loans are what the wildcard's set lends to names whose own lane has not answered, and leaves to
// them when it is given up (WILD-11, WILD-16).
type loans struct {
	x *index
	// inherited are the names that have their copy of a wildcard that was given up, until upstream
	// has spoken of them: true where that was from disk.
	inherited map[string]bool
	// askAgain are those of them for which upstream is to be asked again.
	askAgain map[string]struct{}
}

// lentTo appends the names that a member of the wildcard's set is lent to, those that linger, too;
// some of them twice if it lists them twice.
func (l *loans) lentTo(member string, to []cache.ID) []cache.ID {
	w, ok := l.x.wildcard.Find(member)
	if !ok || l.x.wildcard.Own(w) == nil {
		return to
	}
	for name := range names(l.x.wildcard.Own(w)) {
		if id, ok := l.x.named.Find(name); ok && l.x.desired(id) && l.x.answers.borrows(id) {
			to = append(to, id)
		}
	}
	return to
}

// distinct sorts and drops repetitions.
func distinct(ids []cache.ID) []cache.ID {
	slices.Sort(ids)
	return slices.Compact(ids)
}

// bequeath leaves to names what the wildcard, which is given up, has lent to them, until
// upstream, asked once more, has been silent for too long: then it is gone (WILD-11).
// What was from disk and is not confirmed stays so. What upstream has answered by its own
// name is left to nobody.
func (l *loans) bequeath() {
	type estate struct {
		*cache.Resource
		heirs   []cache.ID
		changed cache.Seq
		ends    time.Time // of its TTL
	}
	var estates []estate // all of them first: what one name has got answers for it
	for r := range l.x.wildcard.All() {
		heirs := slices.DeleteFunc(distinct(l.lentTo(r.Name, nil)), func(id cache.ID) bool { return !l.x.interest.wants(id) })
		if len(heirs) > 0 {
			id, _ := l.x.wildcard.Find(r.Name)
			ends, _, _ := l.x.wildcard.Ends(id)
			estates = append(estates, estate{r.Resource, heirs, l.x.wildcard.Answer(id).Seq, ends})
		}
	}
	for _, e := range estates {
		if l.hasOwn(e.Name) {
			l.markLent(e.Name, slices.DeleteFunc(e.heirs, func(id cache.ID) bool { return l.x.named.State(id) != cache.Absent }))
			continue
		}
		l.inherit(e.Resource, e.heirs, e.changed, e.ends)
	}
}

// hasOwn: upstream has answered a name on its own lane, with a copy or a removal.
func (l *loans) hasOwn(name string) bool {
	id, ok := l.x.named.Find(name)
	return ok && l.x.named.State(id) != cache.Unknown && !l.x.answers.borrows(id)
}

// inherit leaves a resource to names, which are in order, with what is left of its TTL.
func (l *loans) inherit(r *cache.Resource, heirs []cache.ID, changed cache.Seq, ends time.Time) {
	if l.inherited == nil {
		l.inherited = make(map[string]bool)
	}
	if l.askAgain == nil {
		l.askAgain = make(map[string]struct{})
	}
	seq := l.x.next()
	answered, _ := l.x.named.Set(r, "", seq, nil)
	l.x.named.LeaseUntil(r.Name, ends, seq)
	for _, id := range answered {
		if _, heir := slices.BinarySearch(heirs, id); !heir { // it was not lent to that one
			l.x.marks.mark(id, content)
		}
	}
	if own, _ := l.x.named.Find(r.Name); len(answered) > 0 {
		l.x.named.Date(own, changed) // heirs were told it then, if at all
	}
	l.x.named.Doubt(r.Name) // no version of it is upstream's on this lane
	for _, id := range heirs {
		name := l.x.named.Name(id)
		l.inherited[name], l.askAgain[name] = l.x.restored.set, struct{}{}
		l.x.changed(id)
	}
}

// spoken takes in that upstream speaks of a resource on the lane of names, and so of all its names.
// Clients that were kept waiting with a version of their own look at it now.
func (l *loans) spoken(r *cache.Resource) {
	if len(l.inherited) == 0 {
		return
	}
	for name := range names(r) {
		if id, ok := l.x.named.Find(name); ok && l.inherited[name] {
			l.x.marks.mark(id, again)
		}
		l.disown(name, r.Name)
	}
}

// inherits: a resource is here because a wildcard that was given up had it, and upstream
// has not been silent about it for long enough (WILD-11).
func (l *loans) inherits(name string) bool {
	if len(l.inherited) == 0 {
		return false
	}
	id, ok := l.x.named.Find(name)
	return ok && l.x.named.Own(id) != nil && goesBy(l.x.named.Own(id), l.has)
}

// has: a name has its copy of a wildcard that was given up.
func (l *loans) has(name string) bool {
	_, has := l.inherited[name]
	return has
}

// takeAgain reports whether upstream is to be asked for a name again, once.
func (l *loans) takeAgain(name string) (again bool) {
	_, again = l.askAgain[name]
	delete(l.askAgain, name)
	return again
}

// replaced drops all that was left: the wildcard's set is complete again. All goes at once, or one
// would lose what has not come yet.
func (l *loans) replaced() {
	for name := range l.inherited {
		l.disown(name, "")
	}
}

// disown drops what was left to a name, unless it was left to others, too, or is what upstream
// speaks of.
func (l *loans) disown(name, of string) {
	if !l.has(name) {
		return
	}
	delete(l.inherited, name)
	id, _ := l.x.named.Find(name)
	for _, r := range l.x.named.Answer(id).Resources() {
		if own, _ := l.x.named.Find(r.Name); r.Name != of && !l.inherits(r.Name) {
			l.unset(own)
		}
	}
}

// passOn leaves what was left to a name that is given up to the other names of it that somebody
// wants and upstream has not answered: it is still the wildcard's, which replaces it when it is back.
func (l *loans) passOn(name string) {
	id, ok := l.x.named.Find(name)
	restored, inherited := l.inherited[name]
	delete(l.askAgain, name)
	if !ok || !inherited {
		return
	}
	own := func(r *cache.Resource) bool { return !l.inherits(r.Name) }
	for _, r := range l.x.named.Answer(id).Resources() {
		for other := range names(r) {
			if to, _ := l.x.named.Find(other); l.x.named.Pinned(other) && !slices.ContainsFunc(l.x.named.Answer(to).Resources(), own) {
				l.inherited[other] = restored
			}
		}
	}
	l.disown(name, "")
}

// unset drops the copy that bears a name, and marks all names that led to it. Those to whom the
// wildcard lends the same are told its TTL.
func (l *loans) unset(own cache.ID) {
	for name := range names(l.x.named.Own(own)) {
		if id, ok := l.x.named.Find(name); ok {
			l.x.marks.mark(id, content)
		}
	}
	member, limited := l.x.named.Name(own), expires(&l.x.named.Table, own)
	l.x.named.Unset(own, l.x.next())
	l.frees(member)
	w, ok := l.x.wildcard.Find(member)
	if !ok || l.x.wildcard.Own(w) == nil {
		return
	}
	still := l.x.answers.limited(member)
	if limited && !still {
		l.x.wildcard.LoseTTL(w, l.x.next())
	}
	if limited || still {
		l.x.wildcard.markRenewed(l.x.wildcard.Own(w))
	}
}

// frees marks a member of the wildcard's set for those to whom it is lent, and was not as long as
// one of their names led to a resource of that name on its own lane (WILD-16).
func (l *loans) frees(member string) {
	if l.x.wildcard.Aliased() > 0 {
		l.markLent(member, l.lentTo(member, l.x.touched[:0]))
	}
}

// freed are the names of a client to which this is so since it has given others up.
func (l *loans) freed(s *Subscription, given []cache.ID) (freed []cache.ID) {
	if l.x.wildcard.Aliased() == 0 || len(s.ids) == 0 {
		return nil
	}
	v := View{s, l.x}
	for _, id := range given {
		for _, r := range l.x.named.Answer(id).Resources() {
			if !v.owns(r.Name) {
				freed = l.lentTo(r.Name, freed)
			}
		}
	}
	return slices.DeleteFunc(distinct(freed), func(id cache.ID) bool { return !v.Has(id) })
}

// markLent marks what is lent of a member to names, or was, for those to whom it is.
func (l *loans) markLent(member string, to []cache.ID) {
	l.x.touched = to
	for _, id := range distinct(to) {
		l.x.linger.changes(id)
		for _, s := range l.x.interest.of(id) {
			if !(View{s, l.x}).owns(member) {
				l.x.marks.one(s, id, content)
			}
		}
	}
}

// markUnlent marks a name for those to whom the wildcard lends nothing by it, since they have
// that by a name of its own.
func (l *loans) markUnlent(id cache.ID) {
	for _, s := range l.x.interest.of(id) {
		if (View{s, l.x}).Answer(id).State == cache.Absent {
			l.x.marks.one(s, id, content)
		}
	}
}

// Answer is what a subscribed name leads to. Nothing is lent to it of what another of
// the client's names has on its own lane: a client takes a resource from one Table,
// or it would go back and forth between two (WILD-16).
func (v View) Answer(id cache.ID) cache.Answer {
	a, b := v.x.named.Answer(id), v.x.answers.loan(id)
	if b.State != cache.Present {
		return a
	}
	for i := len(b.More) - 1; i >= 0; i-- {
		if v.owns(b.More[i].Name) {
			b.More, b.MoreSeqs = slices.Delete(b.More, i, i+1), slices.Delete(b.MoreSeqs, i, i+1)
		}
	}
	if v.owns(b.Resource.Name) {
		if len(b.More) == 0 {
			return a
		}
		b.Resource, b.Seq, b.More, b.MoreSeqs = b.More[0], b.MoreSeqs[0], b.More[1:], b.MoreSeqs[1:]
	}
	// What the client had by this name went then, whenever the member last changed.
	b.Seq, b.Error = max(b.Seq, v.x.named.Vanished(id)), a.Error
	return b
}

// Unanswered: a subscribed name leads to nothing, and is not known to.
func (v View) Unanswered(id cache.ID) bool {
	return !v.x.named.Answered(id) && v.Answer(id).State == cache.Unknown
}

// owns: one of the client's names has led to a resource on its own lane.
func (v View) owns(name string) bool {
	id, ok := v.x.named.Find(name)
	return ok && v.x.named.Own(id) != nil && goesBy(v.x.named.Own(id), func(asked string) bool {
		_, has := v.Lookup(asked)
		return has
	})
}
