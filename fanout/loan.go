package fanout

import (
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// What the wildcard's copy lends to names whose own lane has not answered
// (WILD-11, WILD-16).

// lentTo appends the names that a member of the wildcard's set is lent to, those that linger, too;
// some of them twice if it lists them twice.
func (x *index) lentTo(member string, to []cache.ID) []cache.ID {
	w, ok := x.wildcard.Find(member)
	if !ok || x.wildcard.Own(w) == nil {
		return to
	}
	for name := range names(x.wildcard.Own(w)) {
		if id, ok := x.named.Find(name); ok && x.desired(id) && x.borrows(id) {
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

// borrows: a name's own lane gives no answer that outweighs a wildcard copy. A
// does-not-exist timer does not: it is silence, not an answer (H-40).
func (x *index) borrows(id cache.ID) bool {
	if !x.named.Answered(id) {
		return true
	}
	return x.named.Led(id) == cache.Absent && x.named.Cause(id) == cache.Timer
}

// lent: what a name leads to is the wildcard's.
func (x *index) lent(id cache.ID) bool {
	if !x.borrows(id) {
		return false
	}
	w, ok := x.wildcard.Find(x.named.Name(id))
	return ok && x.wildcard.Led(w) == cache.Present
}

// bequeath leaves to names what the wildcard, which is given up, has lent to them, until
// upstream, asked once more, has been silent for too long: then it is gone (WILD-11).
// What was from disk and is not confirmed stays so. What upstream has answered by its own
// name is left to nobody.
func (x *index) bequeath() {
	type estate struct {
		*cache.Resource
		heirs   []cache.ID
		changed cache.Seq
		ends    time.Time // of its TTL
	}
	var estates []estate // all of them first: what one name has got answers for it
	for r := range x.wildcard.All() {
		heirs := slices.DeleteFunc(distinct(x.lentTo(r.Name, nil)), func(id cache.ID) bool { return !x.wants(id) })
		if len(heirs) > 0 {
			id, _ := x.wildcard.Find(r.Name)
			ends, _, _ := x.wildcard.Ends(id)
			estates = append(estates, estate{r.Resource, heirs, x.wildcard.Answer(id).Seq, ends})
		}
	}
	for _, e := range estates {
		if x.hasOwn(e.Name) {
			x.markLent(e.Name, slices.DeleteFunc(e.heirs, func(id cache.ID) bool { return x.named.State(id) != cache.Absent }))
			continue
		}
		x.inherit(e.Resource, e.heirs, e.changed, e.ends)
	}
}

// hasOwn: upstream has answered a name on its own lane, with a copy or a removal.
func (x *index) hasOwn(name string) bool {
	id, ok := x.named.Find(name)
	return ok && x.named.State(id) != cache.Unknown && !x.borrows(id)
}

// inherit leaves a resource to names, which are in order, with what is left of its TTL.
func (x *index) inherit(r *cache.Resource, heirs []cache.ID, changed cache.Seq, ends time.Time) {
	if x.inherited == nil {
		x.inherited = make(map[string]bool)
	}
	if x.askAgain == nil {
		x.askAgain = make(map[string]struct{})
	}
	seq := x.next()
	answered, _ := x.named.Set(r, "", seq, nil)
	x.named.LeaseUntil(r.Name, ends, seq)
	for _, id := range answered {
		if _, heir := slices.BinarySearch(heirs, id); !heir { // it was not lent to that one
			x.markContent(id)
		}
	}
	if own, _ := x.named.Find(r.Name); len(answered) > 0 {
		x.named.Date(own, changed) // heirs were told it then, if at all
	}
	x.named.Doubt(r.Name) // no version of it is upstream's on this lane
	for _, id := range heirs {
		name := x.named.Name(id)
		x.inherited[name], x.askAgain[name] = x.wildcard.restored.set, struct{}{}
		x.changed(id)
	}
}

// spoken takes in that upstream speaks of a resource on the lane of names, and so of all its names.
// Clients that were kept waiting with a version of their own look at it now.
func (x *index) spoken(r *cache.Resource) {
	if len(x.inherited) == 0 {
		return
	}
	for name := range names(r) {
		if id, ok := x.named.Find(name); ok && x.inherited[name] {
			x.markID(id, mark{kind: again})
		}
		x.disown(name, r.Name)
	}
}

// inherits: a resource is here because a wildcard that was given up had it, and upstream
// has not been silent about it for long enough (WILD-11).
func (x *index) inherits(name string) bool {
	if len(x.inherited) == 0 {
		return false
	}
	id, ok := x.named.Find(name)
	return ok && x.named.Own(id) != nil && goesBy(x.named.Own(id), func(name string) bool {
		_, inherited := x.inherited[name]
		return inherited
	})
}

// disown drops what was left to a name, unless it was left to others, too, or is what upstream
// speaks of.
func (x *index) disown(name, of string) {
	if _, inherited := x.inherited[name]; !inherited {
		return
	}
	delete(x.inherited, name)
	id, _ := x.named.Find(name)
	for _, r := range x.named.Answer(id).Resources() {
		if own, _ := x.named.Find(r.Name); r.Name != of && !x.inherits(r.Name) {
			x.unset(own)
		}
	}
}

// passOn leaves what was left to a name that is given up to the other names of it that somebody
// wants and upstream has not answered: it is still the wildcard's, which replaces it when it is back.
func (x *index) passOn(name string) {
	id, ok := x.named.Find(name)
	restored, inherited := x.inherited[name]
	if !ok || !inherited {
		return
	}
	own := func(r *cache.Resource) bool { return !x.inherits(r.Name) }
	for _, r := range x.named.Answer(id).Resources() {
		for other := range names(r) {
			if to, _ := x.named.Find(other); x.named.Pinned(other) && !slices.ContainsFunc(x.named.Answer(to).Resources(), own) {
				x.inherited[other] = restored
			}
		}
	}
	x.disown(name, "")
}

// unset drops the copy that bears a name, and marks all names that led to it. Those to whom the
// wildcard lends the same are told its TTL.
func (x *index) unset(own cache.ID) {
	for name := range names(x.named.Own(own)) {
		if id, ok := x.named.Find(name); ok {
			x.markContent(id)
		}
	}
	member, limited := x.named.Name(own), expires(&x.named.Table, own)
	x.named.Unset(own, x.next())
	x.frees(member)
	w, ok := x.wildcard.Find(member)
	if !ok || x.wildcard.Own(w) == nil {
		return
	}
	still := x.limited(member)
	if limited && !still {
		x.wildcard.LoseTTL(w, x.next())
	}
	if limited || still {
		x.wildcard.markRenewed(x.wildcard.Own(w))
	}
}

// frees marks a member of the wildcard's set for those to whom it is lent, and was not as long as
// one of their names led to a resource of that name on its own lane (WILD-16).
func (x *index) frees(member string) {
	if x.wildcard.Aliased() > 0 {
		x.markLent(member, x.lentTo(member, x.touched[:0]))
	}
}

// freed are the names of a client to which this is so since it has given others up.
func (x *index) freed(s *Subscription, given []cache.ID) (freed []cache.ID) {
	if x.wildcard.Aliased() == 0 || len(s.ids) == 0 {
		return nil
	}
	v := View{s, x}
	for _, id := range given {
		for _, r := range x.named.Answer(id).Resources() {
			if !v.owns(r.Name) {
				freed = x.lentTo(r.Name, freed)
			}
		}
	}
	return slices.DeleteFunc(distinct(freed), func(id cache.ID) bool { return !v.Has(id) })
}

// markLent marks what is lent of a member to names, or was, for those to whom it is.
func (x *index) markLent(member string, to []cache.ID) {
	x.touched = to
	for _, id := range distinct(to) {
		if x.fades(id); !x.wants(id) {
			continue
		}
		for _, s := range x.interest[id] {
			if !(View{s, x}).owns(member) {
				x.wake(s.subscriber.mark(s, mark{id: id}))
			}
		}
	}
}

// markUnlent marks a name for those to whom the wildcard lends nothing by it, since they have
// that by a name of its own.
func (x *index) markUnlent(id cache.ID) {
	if !x.wants(id) {
		return // it lingers, perhaps since it was loaded from disk
	}
	for _, s := range x.interest[id] {
		if (View{s, x}).Answer(id).State == cache.Absent {
			x.wake(s.subscriber.mark(s, mark{id: id}))
		}
	}
}

// loan is what the wildcard lends to a name, if anything.
func (x *index) loan(id cache.ID) (a cache.Answer) {
	if x.borrows(id) {
		if w, ok := x.wildcard.Find(x.named.Name(id)); ok {
			a = x.wildcard.Answer(w)
		}
	}
	return a
}

// Answer is what a subscribed name leads to. Nothing is lent to it of what another of
// the client's names has on its own lane: a client takes a resource from one Table,
// or it would go back and forth between two (WILD-16).
func (v View) Answer(id cache.ID) cache.Answer {
	a, b := v.x.named.Answer(id), v.x.loan(id)
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

// wasLent: who asked for the name of a resource was given exactly this from the
// wildcard's copy, and need not be told again (DOWN-DELTA-14); since is when it became that. Those
// who asked for an alias of it know themselves what they were told.
func (x *index) wasLent(r *cache.Resource) (since cache.Seq, was bool) {
	id, ok := x.named.Find(r.Name)
	if !ok {
		return 0, false
	}
	a := x.loan(id)
	return max(a.Seq, x.named.Vanished(id)), a.State == cache.Present && a.Resource.Name == r.Name && a.Resource.Version == r.Version && len(a.More) == 0
}

// lentAlias: the wildcard has lent a resource of that content to one of its aliases.
func (x *index) lentAlias(r *cache.Resource) bool {
	return slices.ContainsFunc(r.Aliases, func(alias string) bool {
		id, ok := x.named.Find(alias)
		if !ok {
			return false
		}
		a := x.loan(id)
		return a.State == cache.Present && slices.ContainsFunc(a.Resources(), func(l *cache.Resource) bool { return l.Name == r.Name && l.Version == r.Version })
	})
}
