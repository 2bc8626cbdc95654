package fanout

import (
	"iter"
	"slices"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
)

// What upstream says, and what a name leads to.

func (x *index) applyNamed(u *cache.Update) (a Applied) {
	x.guards.named.hears(u, x.named.Len())
	announces(&x.named, u)
	x.show(u)
	for _, r := range u.Set {
		wanted := x.covers(r.Resource)
		if !wanted && !x.named.Has(r.Name) {
			a.Dropped += x.keepUnasked(r) // UP-9, H-31
			continue
		}
		x.spoken(r.Resource)
		since, told := x.wasLent(r.Resource)
		lent, seq := x.lentAlias(r.Resource), x.next()
		touched, changed := x.named.Set(r.Resource, r.Upstream, seq, x.touched[:0])
		if !x.solicited(r.Resource) && !u.Full && x.early(r.Resource) {
			x.named.Doubt(r.Name) // it is to come again as an answer
			x.mayBeOld(r.Name)
		}
		renews := x.named.Lease(r.Name, r.TTL, u.At, seq)
		x.handNamed(r.Resource, changed, told)
		own, _ := x.named.Find(r.Name)
		if changed && r.TTL <= 0 && x.hadTTL(r.Name) {
			x.named.LoseTTL(own, seq)
			renews = true
		}
		if told && changed {
			x.named.Date(own, since)
		}
		x.markNamed(slices.DeleteFunc(touched, func(id cache.ID) bool { return told && id == own }))
		if changed {
			x.frees(r.Name)
		}
		if renews || (told || lent) && x.limited(r.Name) {
			x.markRenewed(r.Resource, false)
		}
		if !wanted {
			x.named.Forget(own, x.covers) // it has dropped the alias it was wanted for (NAME-5)
			x.givenUp([]cache.Received{r})
		}
	}
	for _, b := range u.Heartbeats {
		x.heartbeat(false, b, u.At)
	}
	for _, r := range u.Negative {
		x.markNamed(x.named.Deny(r, x.next(), x.touched[:0]))
	}
	now, held := x.guards.named.pass(x.hub.limits.Load().guard, u, &x.named, x.departures(false, u))
	a.Held = held
	for _, d := range now {
		x.removeNamed(d.name, d.cause)
	}
	for _, e := range u.Errors {
		if x.guards.named.holds(e.Name) {
			continue
		}
		if id, ok := x.named.Find(e.Name); ok && x.named.Pinned(e.Name) {
			x.refuse(e.Name, u.Stream)
			if x.named.Fail(id, e.Status) {
				x.markError(id)
			}
		}
	}
	for _, name := range u.Missing {
		if x.missing(name, u.Stream, u.Mute) {
			if id, _ := x.named.Find(name); x.lent(id) { // for as long as the wildcard has it
				x.named.Remove(name, cache.Timer, x.next(), nil)
				x.markUnlent(id)
				continue
			}
			if a.Silent++; a.Silent == 1 {
				a.First = name
			}
			x.removeNamed(name, cache.Timer)
		}
	}
	for _, name := range u.Unanswered {
		if id, ok := x.silent(name, u.Stream); ok {
			x.refuse(name, u.Stream)
			if x.named.Fail(id, unanswered) && x.state(id) != cache.Present {
				x.markError(id)
			}
		}
	}
	return a
}

// early: a resource that was not asked for may be an old answer, to a name that was given
// up and is wanted again (H-1). Of a full-state type it may as well be what the server
// shows in any case, and will not say again.
func (x *index) early(r *cache.Resource) bool {
	return !x.hub.Properties(x.url).FullState || x.left(r)
}

// refuse notes on which stream an error came.
func (x *index) refuse(name string, stream uint64) {
	if x.refused == nil {
		x.refused = make(map[string]uint64)
	}
	x.refused[name] = stream
}

// silent: upstream has said nothing of a name on its own lane, not even an error on this
// stream. What the wildcard lends meanwhile is no answer: it may be gone tomorrow. Nor is
// what was left when it was given up.
func (x *index) silent(name string, stream uint64) (cache.ID, bool) {
	id, ok := x.named.Find(name)
	if !ok || x.named.Answer(id).Error != nil && x.refused[name] == stream {
		return id, false
	}
	_, inherited := x.inherited[name]
	return id, inherited || x.inherits(name) || !x.named.Answered(id)
}

var unanswered = &statuspb.Status{
	Code:    cache.Unavailable,
	Message: "xds-relay: upstream did not answer for this name in time",
}

func (x *index) removeNamed(name string, cause cache.Cause) {
	delete(x.guards.named.held, name)
	id, ok := x.named.Find(name)
	x.disown(name, name)
	lent := ok && x.lent(id)
	touched, changed := x.named.Remove(name, cause, x.next(), x.touched[:0])
	if !changed {
		if lent && cause != cache.Timer {
			x.markContent(id) // an answer at last, after silence
		}
		return
	}
	x.markNamed(touched)
	defer x.frees(name)
	if id, ok := x.named.Find(name); ok && !x.named.Pinned(name) {
		x.named.Forget(id, x.covers)
	}
}

func (x *index) applyWildcard(u *cache.Update) (held Held) {
	if !x.wildcardHeld {
		return held // an answer in flight to what was given up meanwhile (UP-8, H-32)
	}
	x.guards.wildcard.hears(u, x.wildcard.Len())
	announces(&x.wildcard, u)
	changed, renews := false, false
	for _, r := range u.Set {
		lent, seq := x.lentTo(r.Name, x.touched[:0]), x.next()
		_, c := x.wildcard.Set(r.Resource, r.Upstream, seq, nil)
		x.handMember(r.Resource, c)
		if c {
			x.markLent(r.Name, x.lentTo(r.Name, lent))
		}
		if x.wildcard.Lease(r.Name, r.TTL, u.At, seq) {
			x.markRenewed(r.Resource, true)
			renews = true
		}
		changed = changed || c
	}
	for _, b := range u.Heartbeats {
		renews = x.heartbeat(true, b, u.At) || renews
	}
	now, held := x.guards.wildcard.pass(x.hub.limits.Load().guard, u, &x.wildcard, x.departures(true, u))
	changed = x.removeMembers(now) || changed
	if u.Synced {
		changed = changed || !x.synced
		x.synced = true
		for name := range x.inherited { // all at once, or one would lose what has not come yet
			x.disown(name, "")
		}
	}
	if changed {
		x.markWildcards(mark{wildcard: true})
	}
	if renews {
		x.markWildcards(mark{wildcard: true, kind: renewed})
	}
	x.prune()
	return held
}

// departures are the names that an Update takes away from a lane.
func (x *index) departures(wildcard bool, u *cache.Update) (all []departure) {
	add := func(names []string, cause cache.Cause) {
		for _, name := range names {
			all = append(all, departure{name, cause})
		}
	}
	t := x.table(wildcard)
	add(u.Removed, cache.Removed)
	if u.Full {
		// A name that never was Present is not among them: the response may be older
		// than the request for it (TRANSLATE-5).
		add(slices.DeleteFunc(t.Unconfirmed(), func(name string) bool { return !wildcard && x.inherits(name) }), cache.Removed)
	}
	for _, e := range u.Errors {
		if e.Status.GetCode() == cache.NotFound {
			add([]string{e.Name}, cache.NotFoundError)
		}
	}
	if u.Sweep && wildcard {
		add(t.Unconfirmed(), cache.Sweep)
	}
	for _, name := range u.Overdue {
		add(x.overdue(name, u.Stream), cache.Sweep)
	}
	return all
}

// announces prepares a Table for what an Update announces: a response with all there
// is is a generation of its own.
func announces(t *cache.Table, u *cache.Update) {
	if u.Full {
		t.Begin(t.Origin())
	}
	if u.Full || u.First {
		t.Heard()
	}
	for _, name := range u.Kept {
		t.Spare(name)
	}
}

// removeMembers takes names out of the wildcard's set.
func (x *index) removeMembers(all []departure) (changed bool) {
	for _, d := range all {
		delete(x.guards.wildcard.held, d.name)
		if !x.wildcard.Has(d.name) {
			continue // it never was a member; an alias of one is none (NAME-7)
		}
		lent := x.lentTo(d.name, x.touched[:0])
		_, c := x.wildcard.Remove(d.name, d.cause, x.next(), nil)
		x.markLent(d.name, lent)
		changed = changed || c
	}
	return changed
}

// names yields a resource's name and aliases.
func names(r *cache.Resource) iter.Seq[string] {
	return func(yield func(string) bool) {
		if !yield(r.Name) {
			return
		}
		for _, alias := range r.Aliases {
			if !yield(alias) {
				return
			}
		}
	}
}

// answer is what a name leads to for a client: the named Table's answer, or
// until it has one the wildcard's copy (WILD-16).
func (x *index) answer(id cache.ID) cache.Answer {
	a := x.named.Answer(id)
	if b := x.loan(id); b.State == cache.Present {
		b.Error = a.Error
		return b
	}
	return a
}

// state is that of answer.
func (x *index) state(id cache.ID) cache.State {
	if x.lent(id) {
		return cache.Present
	}
	return x.named.Led(id)
}

// differs: a name leads to something else than the wildcard has by that name.
func (x *index) differs(id cache.ID) bool {
	a, b := x.answer(id), cache.Answer{}
	if w, ok := x.wildcard.Find(x.named.Name(id)); ok {
		b = x.wildcard.Answer(w)
	}
	if a.Resource == nil || b.Resource == nil {
		return a.Resource != b.Resource
	}
	return a.Resource.Version != b.Resource.Version
}

func (x *index) setUnavailable(wildcard bool, status *statuspb.Status) {
	if wildcard {
		x.unavailable.wildcard = status
	} else {
		x.unavailable.named = status
	}
	if status == nil {
		x.wakeOnReturn(wildcard)
		return
	}
	if wildcard && (!x.synced || x.wildcard.Husks() > 0) {
		x.markWildcards(mark{wildcard: true})
	}
	if !wildcard {
		for id := range x.interest {
			if len(x.interest[id]) == 0 {
				continue
			}
			if a := x.answer(cache.ID(id)); a.State == cache.Unknown || a.Resource != nil && a.Resource.Husk() {
				x.markError(cache.ID(id))
			}
		}
	}
}

// wakeOnReturn wakes whoever wanted to know when a lane gets answers again.
func (x *index) wakeOnReturn(wildcard bool) {
	back := func(subs []*Subscription) {
		for _, s := range subs {
			if s.outage {
				s.outage = false
				x.wake(s.subscriber.mark(s, mark{kind: again}))
			}
		}
	}
	if wildcard {
		back(x.wildcards)
		return
	}
	for _, subs := range x.interest {
		back(subs)
	}
}
