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
		return x.shown.take(r) // UP-9, H-31
	}
	x.loans.spoken(r.Resource)
	since, told := x.answers.wasLent(r.Resource)
	lent, seq := x.answers.lentAlias(r.Resource), x.next()
	touched, changed := x.named.Set(r.Resource, r.Upstream, seq, x.touched[:0])
	if !x.solicited(r.Resource) && !u.Full && x.early(r.Resource) {
		x.named.Doubt(r.Name) // it is to come again as an answer
		x.shown.mayBeOld(r.Name)
	}
	renews := x.named.Lease(r.Name, r.TTL, u.At, seq)
	x.handNamed(r.Resource, changed, told)
	own, _ := x.named.Find(r.Name)
	if w, member := x.wildcard.Find(r.Name); changed && r.TTL <= 0 && member && x.wildcard.HadTTL(w) {
		x.named.LoseTTL(own, seq)
		renews = true
	}
	if told && changed {
		x.named.Date(own, since)
	}
	x.markNamed(slices.DeleteFunc(touched, func(id cache.ID) bool { return told && id == own }))
	if changed {
		x.loans.frees(r.Name)
	}
	if renews || (told || lent) && x.answers.limited(r.Name) {
		x.named.markRenewed(r.Resource)
	}
	if !wanted {
		x.named.Forget(own, x.covers) // it has dropped the alias it was wanted for (NAME-5)
		x.shown.release([]cache.Received{r})
	}
	return 0
}

// setMember takes in a resource on the wildcard's lane.
func (x *index) setMember(r cache.Received, u *cache.Update) {
	lent, seq := x.loans.lentTo(r.Name, x.touched[:0]), x.next()
	_, changed := x.wildcard.Set(r.Resource, r.Upstream, seq, nil)
	x.handMember(r.Resource, changed)
	if changed {
		x.loans.markLent(r.Name, x.loans.lentTo(r.Name, lent))
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
				x.marks.mark(id, failure)
			}
		}
	}
}

// fallSilent takes in names of which upstream has said nothing for too long. It reports how many became
// Absent for that, and the first of them.
func (x *index) fallSilent(u *cache.Update) (silent int, first string) {
	for _, name := range u.Missing {
		if x.missing(name, u.Stream, u.Mute) {
			if id, _ := x.named.Find(name); x.answers.lent(id) { // for as long as the wildcard has it
				x.named.Remove(name, cache.Timer, x.next(), nil)
				x.loans.markUnlent(id)
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
			if x.named.Fail(id, unanswered) && x.answers.state(id) != cache.Present {
				x.marks.mark(id, failure)
			}
		}
	}
	return silent, first
}

// early: a resource that was not asked for may be an old answer, to a name that was given
// up and is wanted again (H-1). Of a full-state type it may as well be what the server
// shows in any case, and will not say again.
func (x *index) early(r *cache.Resource) bool {
	return !x.fullState() || x.shown.late(r)
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
	return id, x.loans.has(name) || x.loans.inherits(name) || !x.named.Answered(id)
}

var unanswered = &statuspb.Status{
	Code:    cache.Unavailable,
	Message: "xds-relay: upstream did not answer for this name in time",
}

func (x *index) removeNamed(name string, cause cache.Cause) {
	delete(x.named.guard.held, name)
	id, ok := x.named.Find(name)
	x.loans.disown(name, name)
	lent := ok && x.answers.lent(id)
	touched, changed := x.named.Remove(name, cause, x.next(), x.touched[:0])
	if !changed {
		if lent && cause != cache.Timer {
			x.marks.mark(id, content) // an answer at last, after silence
		}
		return
	}
	x.markNamed(touched)
	defer x.loans.frees(name)
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
	lent := x.loans.lentTo(name, x.touched[:0])
	_, changed := x.wildcard.Remove(name, cause, x.next(), nil)
	x.loans.markLent(name, lent)
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
