package fanout

import (
	"iter"
	"slices"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
)

// lane is what one upstream stream says of a type: of all of it, or of some names (WILD-16). Each
// type has one of both kinds.
type lane struct {
	// Table is what upstream has said. The stream that carries the lane writes it.
	cache.Table
	x        *index
	wildcard bool
	// guard holds back what would remove much at once (H-22).
	guard guard
	// doubts are the faults that were met (ERR-10).
	doubts doubts
	// said: upstream has said all there is, which confirms what was loaded from disk as soon as none
	// of it is in doubt (ERR-10).
	said bool
	// unavailable: upstream does not answer, and why (ERR-7).
	unavailable *statuspb.Status
	// dirty are those of which upstream is to look whether they are wanted (Wanted).
	dirty queue[struct{}]
	text  digestText

	// Of the wildcard only: somebody wants it, or did so until Changes gives it up (held); upstream is
	// being asked for it (asked), and has said all of it once (synced; RECON-16, RECON-17).
	held, asked, synced bool

	// Of one change: whether the wildcard's set is another now, and whether TTLs in it were renewed.
	changed, renewed bool
}

func (x *index) newLane(at Lane) lane {
	return lane{Table: cache.Table{Changed: x.changes}, x: x, wildcard: at.Wildcard}
}

// lane is the one with an address.
func (x *index) lane(at Lane) *lane {
	if at.Wildcard {
		return &x.wildcard
	}
	return &x.named
}

// address is where upstream knows the lane by.
func (l *lane) address() Lane { return Lane{l.x.url, l.wildcard} }

// apply takes in what upstream says on the lane.
func (l *lane) apply(u *cache.Update) (a Applied) {
	look := l.doubt(u)
	if !l.wildcard {
		l.x.restored.hears(u)
	}
	a = l.takeIn(u)
	l.tell()
	if u.Synced {
		l.guard.complete()
		l.said = true
	}
	l.conclude()
	if look {
		l.lookAgain()
	}
	return a
}

// takeIn changes the Table by what upstream says.
func (l *lane) takeIn(u *cache.Update) (a Applied) {
	if l.wildcard && !l.held {
		return a // an answer in flight to what was given up meanwhile (UP-8, H-32)
	}
	l.guard.hears(u, l.Len())
	l.announced(u)
	if !l.wildcard && l.x.fullState() {
		l.x.shown.hears(u)
	}
	for _, r := range u.Set {
		if l.wildcard {
			l.x.setMember(r, u)
		} else {
			a.Dropped += l.x.setNamed(r, u)
		}
	}
	for _, b := range u.Heartbeats {
		l.heartbeat(b, u.At)
	}
	if !l.wildcard {
		l.x.deny(u.Negative)
	}
	now, held := l.guard.pass(l.x.hub.limits.Load().guard, u, &l.Table, l.departures(u))
	a.Held = held
	l.remove(now)
	if l.wildcard {
		l.completes(u)
		l.x.prune()
	} else {
		l.x.fail(u)
		a.Silent, a.First = l.x.fallSilent(u)
	}
	return a
}

// announced prepares the Table for what an Update announces: a response with all there is is a
// generation of its own.
func (l *lane) announced(u *cache.Update) {
	if u.Full {
		l.Begin(l.Origin())
	}
	if u.Full || u.First {
		l.Heard()
	}
	for _, name := range u.Kept {
		l.Spare(name)
	}
}

// departures are the names that an Update takes away.
func (l *lane) departures(u *cache.Update) (all []departure) {
	add := func(names []string, cause cache.Cause) {
		for _, name := range names {
			all = append(all, departure{name, cause})
		}
	}
	add(u.Removed, cache.Removed)
	if u.Full {
		// A name that never was Present is not among them: the response may be older
		// than the request for it (TRANSLATE-5).
		add(slices.DeleteFunc(l.Unconfirmed(), func(name string) bool { return !l.wildcard && l.x.loans.inherits(name) }), cache.Removed)
	}
	for _, e := range u.Errors {
		if e.Status.GetCode() == cache.NotFound {
			add([]string{e.Name}, cache.NotFoundError)
		}
	}
	if u.Sweep && l.wildcard {
		add(l.Unconfirmed(), cache.Sweep)
	}
	for _, name := range u.Overdue {
		add(l.x.overdue(name, u.Stream), cache.Sweep)
	}
	return all
}

// remove makes names Absent.
func (l *lane) remove(all []departure) {
	for _, d := range all {
		if l.wildcard {
			l.x.removeMember(d.name, d.cause)
		} else {
			l.x.removeNamed(d.name, d.cause)
		}
	}
}

// completes takes in whether an Update completes the wildcard's set.
func (l *lane) completes(u *cache.Update) {
	if !u.Synced {
		return
	}
	l.changed = l.changed || !l.synced
	l.synced = true
	l.x.loans.replaced()
}

// conclude confirms what was loaded if all was said and nothing is in doubt.
func (l *lane) conclude() {
	switch {
	case !l.said || l.doubts.any():
		return
	case l.wildcard:
		l.x.restored.confirmSet()
	default:
		l.x.restored.confirmNames()
	}
	l.said = false
}

// tell marks, for those who have the wildcard, what has become of its set. What has become of names
// is marked by name.
func (l *lane) tell() {
	if l.changed {
		l.x.marks.mark(wildcardID, content)
	}
	if l.renewed && l.wildcard {
		l.x.marks.mark(wildcardID, renewed)
	}
	l.changed, l.renewed = false, false
}

// setUnavailable says why upstream does not answer, or with nil that it does again.
func (l *lane) setUnavailable(status *statuspb.Status) {
	l.unavailable = status
	switch x := l.x; {
	case status == nil:
		l.wakeOnReturn()
	case l.wildcard && (!l.synced || l.Husks() > 0):
		x.marks.mark(wildcardID, content)
	case !l.wildcard:
		for id := range x.interest.named() {
			if a := x.answers.of(id); a.State == cache.Unknown || a.Resource != nil && a.Resource.Husk() {
				x.marks.mark(id, failure)
			}
		}
	}
}

// audience yields what clients of the lane subscribe to: each name, or the wildcard.
func (l *lane) audience() iter.Seq2[cache.ID, []*Subscription] {
	if l.wildcard {
		return l.x.interest.wildcard()
	}
	return l.x.interest.named()
}

// wakeOnReturn wakes whoever wanted to know when the lane gets answers again.
func (l *lane) wakeOnReturn() {
	for id, subs := range l.audience() {
		for _, s := range subs {
			if s.outage {
				s.outage = false
				l.x.marks.one(s, id, again)
			}
		}
	}
}

// lookAgain has all clients of the lane look again.
func (l *lane) lookAgain() {
	for id := range l.audience() {
		l.x.marks.mark(id, again)
	}
}

// hasSpoken: upstream has said something on the lane that holds.
func (l *lane) hasSpoken() bool {
	if l.wildcard {
		return l.synced && len(l.Unconfirmed()) == 0
	}
	for id := range cache.ID(l.Cap()) {
		if l.Pinned(l.Name(id)) && l.x.spokenOf(id) {
			return true
		}
	}
	return false
}
