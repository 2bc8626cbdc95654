package fanout

import (
	"iter"
	"slices"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
)

// namedLane is what upstream sends of the names that it was asked for.
type namedLane struct {
	lane
	// refused are the names that upstream has answered with an error, with the stream on which it
	// came. The error is an answer only on that stream.
	refused map[string]uint64
	// again are the names that upstream has to be asked for again, because the wildcard that answered
	// for them was given up, until it is.
	again map[string]struct{}
	// complete are the globs whose members are all here, as they were once (RECON-16).
	complete map[string]struct{}
	// turned are the names that have become Absent or wanted, or are not Absent any more, since Absences.
	turned queue[struct{}]
}

// desired returns all names that are wanted, linger, or are kept for the snapshot.
func (n *namedLane) desired() (names []string) {
	for id, name := range n.Interned() {
		if n.x.desired(id) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (n *namedLane) audience() iter.Seq2[cache.ID, []*Subscription] { return n.x.interest.named() }

func (n *namedLane) leadsHere(cache.ID) bool { return true }

func (n *namedLane) hasSpoken() bool {
	for id := range n.Interned() {
		if n.spokenOf(id) {
			return true
		}
	}
	return false
}

// spokenOf reports whether upstream has answered a name on its own lane. Silence that was taken for
// an answer does not count.
func (n *namedLane) spokenOf(id cache.ID) bool {
	name := n.Name(id)
	if _, silent := n.silent(name, n.refused[name]); silent {
		return false
	}
	a := n.Answer(id)
	switch {
	case a.Error != nil:
		return !ours(a.Error)
	case a.State == cache.Present:
		return len(n.UnannouncedAnswers(name)) == 0
	default:
		return a.Cause != cache.Timer
	}
}

func (n *namedLane) takeIn(u *cache.Update) (a Applied) {
	n.agreeBySilence(u)
	n.begin(u)
	if n.x.fullState() {
		n.x.unsolicited.observe(u)
	}
	for _, r := range u.Set {
		a.Dropped += n.set(r, u)
	}
	n.heartbeats(u)
	all := n.departures(u)
	for _, name := range u.Overdue {
		all.add(n.UnannouncedAnswers(name), cache.Sweep)
	}
	a.Held = n.depart(u, all)
	n.deny(u.Negative)
	n.fail(u)
	n.leaveOut(u)
	a.Silent, a.First = n.fallSilent(u)
	n.completes(u)
	return a
}

func (n *namedLane) unannounced() []string {
	return slices.DeleteFunc(n.Unannounced(), n.leavesOut)
}

func (n *namedLane) fails() {
	for id := range n.x.interest.named() {
		a, kind := n.x.answers.of(id), failure
		if a.Error != nil {
			kind = recheck // clients were told of that error, and it says enough (ERR-9)
		}
		if n.x.resolution(id, a, false) == Pending {
			n.x.marks.mark(id, kind)
		}
	}
}

// set applies a resource to the lane of names. It returns how many resources that nobody has asked
// for were dropped.
func (n *namedLane) set(r cache.Received, u *cache.Update) (dropped int) {
	wanted := n.x.covers(r.Resource)
	if !wanted && !n.Has(r.Name) {
		for name := range r.Names() { // an earlier removal is out of date
			if id, ok := n.Find(name); ok && n.State(id) == cache.Absent {
				n.Unset(id, n.x.next())
			}
		}
		return n.x.unsolicited.take(r) // UP-9, H-31
	}
	if id, ok := n.Find(r.Name); ok {
		n.agree(id)
	}
	since, told := n.x.answers.same(r.Resource)
	seq := n.x.next()
	touched, changed := n.Set(r.Resource, r.Upstream, seq)
	if n.mayBeOld(r.Resource, u) {
		n.Unannounce(r.Name) // until it comes again as an answer
		if n.x.fullState() {
			n.x.unsolicited.early[r.Name] = true
		}
	}
	renews := n.Lease(r.Name, r.TTL, u.At, seq)
	own, _ := n.Find(r.Name)
	if changed && r.TTL <= 0 && n.x.wildcard.HadTTL(r.Name) {
		n.LoseTTL(r.Name, seq)
		renews = true
	}
	if told && changed {
		n.Date(own, since)
		if n.x.wildcard.restored {
			n.x.marks.mark(own, recheck) // clients that came with another version have waited
		}
	}
	n.x.markNamed(slices.DeleteFunc(touched, func(id cache.ID) bool { return told && id == own }))
	switch {
	case n.Repeat(r.Name, seq):
		n.markRenewed(r.Resource, repeated)
	case renews, n.x.wildcard.Same(r.Resource) && n.x.answers.limited(r.Name):
		n.markRenewed(r.Resource, renewed)
	}
	if !wanted {
		n.Forget(own, n.x.covers) // it no longer lists the alias that was wanted (NAME-5)
		n.x.unsolicited.release([]cache.Received{r})
	}
	return 0
}

// mayBeOld reports whether a resource may be an old answer, to a name that was given up and is wanted again (H-1). If
// the type is full-state, the server may also send it in any case, and not repeat it.
func (n *namedLane) mayBeOld(r *cache.Resource, u *cache.Update) bool {
	if u.Full || n.x.solicited(r) {
		return false
	}
	return !n.x.fullState() || n.x.unsolicited.late(r)
}

// deny applies answers that say of all their aliases that there is nothing (NAME-6).
func (n *namedLane) deny(negative []*cache.Resource) {
	for _, r := range negative {
		n.x.markNamed(n.Deny(r, n.x.next()))
	}
}

// fail applies upstream's errors to names.
func (n *namedLane) fail(u *cache.Update) {
	for _, e := range u.Errors {
		if _, held := n.guard.held[e.Name]; held {
			continue
		}
		if id, ok := n.Find(e.Name); ok && n.Pinned(e.Name) {
			n.refused[e.Name] = u.Stream
			if n.Fail(id, e.Status) {
				n.x.marks.mark(id, failure)
			}
		}
	}
}

// fallSilent applies the end of the timers of names that upstream has not answered. It returns how
// many became Absent, and the first of them.
func (n *namedLane) fallSilent(u *cache.Update) (silent int, first string) {
	for _, name := range u.Missing {
		if n.missing(name, u.Stream) {
			id, _ := n.Find(name)
			if n.x.answers.fallsBack(id) { // it resolves to the member as long as there is one
				since := n.Vanished(id)
				if n.Remove(name, cache.Timer, n.x.next()); since > 0 {
					n.Date(id, since) // clients have had the member since then
				}
				continue
			}
			if n.x.interest.wants(id) { // what only lingers is nobody's news
				if silent++; silent == 1 {
					first = name
				}
			}
			n.remove(name, cache.Timer)
		}
	}
	for _, name := range u.Unanswered {
		if id, ok := n.silent(name, u.Stream); ok && !n.askedAgain(name) {
			n.refused[name] = u.Stream
			if n.Fail(id, unanswered) && n.x.answers.of(id).State != cache.Present {
				n.x.marks.mark(id, failure)
			}
		}
	}
	return silent, first
}

// askedAgain reports whether upstream is about to be asked for a name again, so that its silence about it says nothing.
func (n *namedLane) askedAgain(name string) bool {
	_, again := n.again[name]
	return again
}

// othersFallSilent makes the other names of a resource that is gone by silence Absent, too.
func (n *namedLane) othersFallSilent(r *cache.Resource) {
	for name := range r.Names() {
		if id, ok := n.Find(name); ok && n.Asked(id) && n.Answer(id).State == cache.Unknown {
			n.Remove(name, cache.Timer, n.x.next())
		}
	}
}

func (n *namedLane) remove(name string, cause cache.Cause) {
	delete(n.guard.held, name)
	id, ok := n.Find(name)
	fellBack := ok && n.x.answers.fallsBack(id)
	unproven := ok && n.unproven(n.Answer(id))
	r := n.Bearer(name)
	touched, changed := n.Remove(name, cause, n.x.next())
	if !changed {
		switch { // it was Absent by silence; now upstream says so
		case fellBack && cause != cache.Timer:
			n.x.marks.mark(id, content)
		case unproven:
			n.x.marks.mark(id, recheck)
		}
		return
	}
	n.x.markNamed(touched)
	if cause == cache.Timer && r != nil {
		n.othersFallSilent(r)
	}
	mayBeByAlias := r == nil || len(r.Aliases) > 0
	switch {
	case !n.Pinned(name):
		n.Forget(id, n.x.covers)
	case cause == cache.Removed && mayBeByAlias && !n.Asked(id):
		// Perhaps the alias for which it was here, or was sent, has lost it. Only the answer to its
		// name says whether it exists (UP-8).
		n.Unset(id, n.x.next())
	}
}

// ours reports whether the relay itself has given an error in place of an answer of upstream's.
func ours(status *statuspb.Status) bool { return status == unanswered || status == leftOut }

var unanswered = &statuspb.Status{
	Code:    cache.Unavailable,
	Message: "xds-relay: upstream did not answer for this name in time",
}

// silent reports whether upstream has sent nothing for a name on its own lane, not even an error on
// this stream. A member of the wildcard's set is no answer, since it may be removed tomorrow.
func (n *namedLane) silent(name string, stream uint64) (cache.ID, bool) {
	id, ok := n.Find(name)
	if !ok || n.Answer(id).Error != nil && n.refused[name] == stream {
		return id, false
	}
	return id, !n.Answered(id)
}
