package fanout

import (
	"iter"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
)

// lane is what one upstream stream says of a type: of some names (named.go), or of all of it
// (wildcard.go; WILD-16). Each type has one of both kinds. Here is what they have in common.
type lane struct {
	// Table is what upstream has said. The stream that carries the lane writes it.
	cache.Table
	x    *index
	kind laneKind
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
}

// laneKind is what the two kinds of lanes do each in its own way.
type laneKind interface {
	// address is where upstream knows the lane by.
	address() Lane
	// desired is the whole interest of the lane.
	desired() (names []string)
	// audience yields what clients of the lane subscribe to: each name, or the wildcard.
	audience() iter.Seq2[cache.ID, []*Subscription]
	// leadsHere: what a name leads to, if anything, is what the lane has.
	leadsHere(named cache.ID) bool
	// hasSpoken: upstream has said something on the lane that holds.
	hasSpoken() bool

	// awaitsDoubtful: somebody waits for something that is in doubt, or not confirmed.
	awaitsDoubtful() bool

	// hears takes in what an Update says of names that are in doubt, or were loaded from disk, before
	// it is applied; look: clients are to look again after it.
	hears(u *cache.Update) (look bool)
	// takeIn changes the Table by what upstream says.
	takeIn(u *cache.Update) Applied
	// unannounced are the names of which a response with all there is says nothing, and that it takes away.
	unannounced() []string
	// remove makes a name Absent.
	remove(name string, cause cache.Cause)
	// confirm: upstream has confirmed all that was loaded from disk.
	confirm()
	// fails marks whatever waits for upstream, which does not answer.
	fails()
}

func (x *index) newLane(k laneKind) lane {
	return lane{Table: cache.Table{Changed: x.leaving.changes}, x: x, kind: k}
}

// lane is the one with an address.
func (x *index) lane(at Lane) *lane {
	if at.Wildcard {
		return &x.wildcard.lane
	}
	return &x.named.lane
}

// apply takes in what upstream says on the lane.
func (l *lane) apply(u *cache.Update) (a Applied) {
	look := l.doubts.hears(u)
	look = l.kind.hears(u) || look
	a = l.kind.takeIn(u)
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

// begin prepares the Table for what an Update announces: a response with all there is is a
// generation of its own.
func (l *lane) begin(u *cache.Update) {
	l.guard.hears(u, l.Len())
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

// heartbeats takes in bodyless renewals of what is Present (TTL-4).
func (l *lane) heartbeats(u *cache.Update) (renewed bool) {
	for _, b := range u.Heartbeats {
		if !l.Lease(b.Name, b.TTL, u.At, l.x.next()) {
			continue
		}
		if id, ok := l.Find(b.Name); ok {
			renewed = true
			l.markRenewed(l.Own(id))
		}
	}
	return renewed
}

// markRenewed marks, for those who ask for names and know TTLs, a resource whose own was renewed on
// a lane while its content stayed (TTL-12).
func (l *lane) markRenewed(r *cache.Resource) {
	for name := range names(r) {
		if id, ok := l.x.named.Find(name); ok && l.kind.leadsHere(id) {
			l.x.marks.mark(id, renewed)
		}
	}
}

// departures are the names that an Update takes away.
func (l *lane) departures(u *cache.Update) (all departures) {
	all.add(u.Removed, cache.Removed)
	if u.Full {
		// A name that never was Present is not among them: the response may be older
		// than the request for it (TRANSLATE-5).
		all.add(l.kind.unannounced(), cache.Removed)
	}
	for _, e := range u.Errors {
		if e.Status.GetCode() == cache.NotFound {
			all.add([]string{e.Name}, cache.NotFoundError)
		}
	}
	return all
}

// depart removes what an Update takes away, unless the guard holds it back.
func (l *lane) depart(u *cache.Update, all departures) (held Held) {
	all, held = l.guard.pass(l.x.hub.limits.Load().guard, u, &l.Table, all)
	l.removeAll(all)
	return held
}

// removeAll makes names Absent.
func (l *lane) removeAll(all departures) {
	for _, d := range all {
		l.kind.remove(d.name, d.cause)
	}
}

// conclude confirms what was loaded if all was said and nothing is in doubt.
func (l *lane) conclude() {
	if l.said && !l.doubts.any() {
		l.said = false
		l.kind.confirm()
	}
}

// setUnavailable says why upstream does not answer, or with nil that it does again: then whoever
// wanted to know is woken.
func (l *lane) setUnavailable(status *statuspb.Status) {
	if l.unavailable = status; status != nil {
		l.kind.fails()
		return
	}
	for id, subs := range l.kind.audience() {
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
	for id := range l.kind.audience() {
		l.x.marks.mark(id, again)
	}
}
