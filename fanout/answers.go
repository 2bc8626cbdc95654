package fanout

import (
	"iter"
	"slices"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
)

// What upstream says, and what a name leads to.

// setNamed takes in a resource on the lane of names. It reports how many go that nobody has asked for.
func (x *index) setNamed(r cache.Received, u *cache.Update) (dropped int) {
	wanted := x.covers(r.Resource)
	if !wanted && !x.named.Has(r.Name) {
		return x.keepUnasked(r) // UP-9, H-31
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
		x.named.markRenewed(r.Resource)
	}
	if !wanted {
		x.named.Forget(own, x.covers) // it has dropped the alias it was wanted for (NAME-5)
		x.givenUp([]cache.Received{r})
	}
	return 0
}

// setMember takes in a resource on the wildcard's lane.
func (x *index) setMember(r cache.Received, u *cache.Update) {
	lent, seq := x.lentTo(r.Name, x.touched[:0]), x.next()
	_, changed := x.wildcard.Set(r.Resource, r.Upstream, seq, nil)
	x.handMember(r.Resource, changed)
	if changed {
		x.markLent(r.Name, x.lentTo(r.Name, lent))
		x.wildcard.changed = true
	}
	if x.wildcard.Lease(r.Name, r.TTL, u.At, seq) {
		x.wildcard.renewed = true
		x.wildcard.markRenewed(r.Resource)
	}
}

// deny takes in answers that say of all their aliases that there is nothing (NAME-6).
func (x *index) deny(negative []*cache.Resource) {
	for _, r := range negative {
		x.markNamed(x.named.Deny(r, x.next(), x.touched[:0]))
	}
}

// fail takes in errors for names.
func (x *index) fail(u *cache.Update) {
	for _, e := range u.Errors {
		if x.named.guard.holds(e.Name) {
			continue
		}
		if id, ok := x.named.Find(e.Name); ok && x.named.Pinned(e.Name) {
			x.refuse(e.Name, u.Stream)
			if x.named.Fail(id, e.Status) {
				x.markError(id)
			}
		}
	}
}

// fallSilent takes in names of which upstream has said nothing for too long. It reports how many became
// Absent for that, and the first of them.
func (x *index) fallSilent(u *cache.Update) (silent int, first string) {
	for _, name := range u.Missing {
		if x.missing(name, u.Stream, u.Mute) {
			if id, _ := x.named.Find(name); x.lent(id) { // for as long as the wildcard has it
				since := x.named.Vanished(id)
				if x.named.Remove(name, cache.Timer, x.next(), nil); since > 0 {
					x.named.Date(id, since) // what is lent has been told since then
				}
				x.markUnlent(id)
				continue
			}
			if silent++; silent == 1 {
				first = name
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
	return silent, first
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
	delete(x.named.guard.held, name)
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

// removeMember takes a name out of the wildcard's set.
func (x *index) removeMember(name string, cause cache.Cause) {
	delete(x.wildcard.guard.held, name)
	if !x.wildcard.Has(name) {
		return // it never was a member; an alias of one is none (NAME-7)
	}
	lent := x.lentTo(name, x.touched[:0])
	_, changed := x.wildcard.Remove(name, cause, x.next(), nil)
	x.markLent(name, lent)
	x.wildcard.changed = x.wildcard.changed || changed
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
