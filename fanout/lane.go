package fanout

import (
	"iter"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
)

// lane is what one upstream stream sends of a type: some names (named.go), or all of it
// (wildcard.go; WILD-16). Each type has one lane of both kinds. This file has what they share.
type lane struct {
	// Table is what upstream has sent. Only the stream that carries the lane changes it.
	cache.Table
	x    *index
	at   Lane // its address
	kind laneKind
	// guard holds back updates that remove much at once (H-22).
	guard  guard
	faults faults
	// unavailable is why upstream does not answer (ERR-7); nil: it does.
	unavailable *statuspb.Status
	// dirty are the names that upstream has to look at (Wanted).
	dirty queue[look]
	// sum is the digest of the Table for which text was made.
	sum  cache.Digest
	text string
}

// laneKind is what differs between the two kinds of lanes.
type laneKind interface {
	// desired returns the whole interest of the lane.
	desired() (names []string)
	// audience yields what clients subscribe to on the lane, each name or the wildcard, with the
	// subscribers.
	audience() iter.Seq2[cache.ID, []*Subscription]
	// leadsHere reports whether a name that leads to something takes it from this lane.
	leadsHere(named cache.ID) bool
	// hasSpoken reports whether upstream has given an answer on the lane that is still valid.
	hasSpoken() bool

	// awaits reports whether a client waits for something uncertain.
	awaits() bool

	// takeIn applies an Update to the Table; fill takes out of one what fills gaps (UP-26).
	takeIn(u *cache.Update) Applied
	fill(u *cache.Update)
	// unannounced returns the names that a response with everything does not list and therefore
	// removes.
	unannounced() []string
	// remove makes a name Absent.
	remove(name string, cause cache.Cause)
	// fails marks, when upstream becomes unavailable, everything that clients still wait for.
	fails()
}

func (x *index) newLane(at Lane, k laneKind) lane {
	return lane{Table: cache.Table{Changed: x.leaving.changes}, x: x, at: at, kind: k}
}

func (x *index) lane(at Lane) *lane {
	if at.Wildcard {
		return &x.wildcard.lane
	}
	return &x.named.lane
}

// digest returns the digest of the Table as text, which is made once.
func (l *lane) digest() string {
	if now := l.Digest(); l.text == "" || now != l.sum {
		l.sum, l.text = now, now.String()
	}
	return l.text
}

func (l *lane) apply(u *cache.Update) (a Applied) {
	if l.faults.observe(u) {
		l.lookAgain()
	}
	a = l.kind.takeIn(u)
	a.Held.Returned = l.guard.takeReturned()
	return a
}

// begin prepares the Table for an Update. A response with everything is a generation of its own.
func (l *lane) begin(u *cache.Update) {
	l.guard.observe(u, l.Len())
	if u.Full {
		l.Begin(l.Origin())
	}
	if u.Full || u.First {
		l.Heard()
	}
	for _, name := range u.Kept {
		l.Mention(name, u.Full)
	}
}

// heartbeats applies renewals without a body to resources that are Present (TTL-4).
func (l *lane) heartbeats(u *cache.Update) (some bool) {
	for _, b := range u.Heartbeats {
		if l.Lease(b.Name, b.TTL, u.At, l.x.next()) {
			some = true
			l.markRenewed(l.Bearer(b.Name), renewed)
		}
	}
	return some
}

// markRenewed marks a resource that was renewed while its content stayed, for the clients whose
// names take it from this lane: for those that know TTLs (renewed, TTL-12), or for all (repeated,
// TTL-13).
func (l *lane) markRenewed(r *cache.Resource, as kind) {
	for name := range r.Names() {
		if id, ok := l.x.named.Find(name); ok && l.kind.leadsHere(id) {
			l.x.marks.mark(id, as)
		}
	}
}

// departures returns the names that an Update removes.
func (l *lane) departures(u *cache.Update) (all departures) {
	all.add(u.Removed, cache.Removed)
	if u.Full {
		// A name that never was Present is not removed: the response may be older
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

// depart carries out the removals of an Update, except those that the guard holds back.
func (l *lane) depart(u *cache.Update, all departures) (held Held) {
	all, held = l.guard.pass(l.x.hub.limits.Load().Guard, u, &l.Table, all)
	l.removeAll(all)
	return held
}

func (l *lane) removeAll(all departures) {
	for _, d := range all {
		l.kind.remove(d.name, d.cause)
	}
}

// setUnavailable notes why upstream does not answer, or with nil that it answers again. Clients may
// have waited for that (ERR-7).
func (l *lane) setUnavailable(status *statuspb.Status) {
	if l.unavailable = status; status != nil {
		l.kind.fails()
	} else {
		l.lookAgain()
	}
}

// lookAgain marks all clients of the lane, so that they look again at what they are owed.
func (l *lane) lookAgain() {
	for id := range l.kind.audience() {
		l.x.marks.mark(id, recheck)
	}
}
