package fanout

import (
	"maps"
	"slices"

	"github.com/xds-relay/xds-relay/cache"
)

// What the relay knows of a name, and how certainly, is decided here.
//
// Absence is certain when it was said (a removal, NOT_FOUND, a full answer without the name), when a TTL has ended, when
// it was swept, or when the name's timer has ended on an alive stream. To a client that brought the name, a timer counts
// only on a sound lane (faults). A malformed name keeps what it had, and is not absent by silence. A copy that is only
// from disk is for clients that brought nothing: it replaces nothing, and its lack removes nothing (unconfirmed).

// Resolution is what the relay knows of a name for one client (protocol.md §0). Sets that go to
// clients, unary calls, readiness and failover all ask here whether a name is resolved.
type Resolution uint8

const (
	// Pending: upstream has not answered. Clients wait.
	Pending Resolution = iota
	// Present: there is a copy, upstream's latest as far as this client is concerned (RECON-19).
	Present
	// Absent: upstream does not have it.
	Absent
	// Errored: there is no copy, and upstream has answered with an error.
	Errored
	// InDoubt: a client that came with a copy may keep it. What upstream sent cannot be used, or the
	// copy here is restored, or only a silence that proves little says that the name does not
	// exist. Nobody waits for the name, and nothing is sent of it.
	InDoubt
)

// Awaited reports whether the client may be sent more than it was: an answer, or the copy.
func (v Resolution) Awaited() bool { return v == Pending || v == Present }

// Resolution returns that of a subscribed name. brought: the client came with a copy of it, or may
// have.
func (v View) Resolution(id cache.ID, brought bool) Resolution {
	return v.x.resolution(id, v.Answer(id), brought)
}

// Doubted reports whether a name that a client came with is in doubt. A name that it does not
// subscribe to may be in doubt, too: it may bear the resource that a malformed or unreadable answer was
// for.
func (v View) Doubted(name string) bool {
	if id, ok := v.Lookup(name); ok {
		return v.Resolution(id, true) == InDoubt
	}
	if v.s.wildcard && v.Set().Member(name) == nil && v.x.wildcard.mayHold(name) {
		return true
	}
	return len(v.s.names.ids) > 0 && v.x.named.faults.concern(name)
}

func (x *index) resolution(id cache.ID, a cache.Answer, brought bool) Resolution {
	switch {
	case a.State == cache.Present && brought && x.unconfirmed(id):
		return InDoubt
	case a.State == cache.Present:
		return Present
	case brought && x.named.mayHold(x.named.Name(id), a):
		return InDoubt
	case a.State == cache.Absent:
		return Absent
	case a.Error != nil && cache.Resolves(a.Error):
		return Errored
	}
	return Pending
}

// Resolution returns that of the wildcard's set: Pending, InDoubt or Present. brought: the client came with
// members of it, or may have.
func (v Set) Resolution(brought bool) Resolution {
	switch {
	case !v.s.wildcard:
		return Present
	case !v.x.wildcard.isFor(brought):
		return Pending
	case brought && (v.x.wildcard.restored || v.x.wildcard.lacks()):
		return InDoubt
	}
	return Present
}

// mayHold reports whether a client that brought a name may keep it, although there is no copy of it here.
func (n *namedLane) mayHold(name string, a cache.Answer) bool {
	if _, malformed := n.faults.malformed[name]; malformed {
		return a.Cause != cache.TTLExpired
	}
	return n.unproven(a)
}

// unproven reports whether only a silence that proves little says that a name does not exist.
func (n *namedLane) unproven(a cache.Answer) bool {
	return a.State == cache.Absent && a.Cause == cache.Timer && !n.faults.sound()
}

// mayHold reports the same of a member of the set. What upstream has removed is gone.
func (w *wildcardLane) mayHold(name string) bool {
	id, known := w.Find(name)
	removed := known && w.State(id) == cache.Absent
	return w.faults.concern(name) && !removed
}

// lacks reports whether the set may have a member that is not here.
func (w *wildcardLane) lacks() bool {
	for name := range w.faults.malformed {
		if !w.Has(name) {
			return true
		}
	}
	return w.faults.unreadable != 0
}

// missing reports whether a name becomes Absent when its timer has run out on a stream.
func (n *namedLane) missing(name string, stream uint64) bool {
	_, silent := n.silent(name, stream)
	exists := n.faults.cameOn(stream, name) || n.x.unsolicited.has(name, stream)
	return silent && !exists && !n.askedAgain(name) // WILD-11
}

// faults are what the streams of a lane have shown that keeps their silence from being proof. A resource
// that arrives malformed cannot be used, but it shows that its name exists: the name keeps what it had, and
// is not absent by silence (ERR-10). If the name itself could not be read, it may be any. A stream that has
// carried nothing of a type proves little by its silence about one name (MISS-4). All of it outlives its
// stream (ERR-16).
type faults struct {
	// malformed are the names whose last answer could not be used, with the stream on which it came.
	malformed map[string]uint64
	// unreadable is the last stream on which a fault hid a name, and unproven the one on which a name's timer ended
	// that had carried nothing of the type. Zero: there is none, or a later stream has made up for it.
	unreadable, unproven uint64
}

// any reports whether something exists, or may, that could not be used.
func (f *faults) any() bool { return f.unreadable != 0 || len(f.malformed) > 0 }

// sound reports whether the end of a timer counts for clients that brought the name.
func (f *faults) sound() bool { return f.unreadable == 0 && f.unproven == 0 }

// concern reports whether a name may exist although there is no copy of it.
func (f *faults) concern(name string) bool {
	_, malformed := f.malformed[name]
	return malformed || f.unreadable != 0
}

// cameOn reports whether this stream has sent the answer to a name malformed.
func (f *faults) cameOn(stream uint64, name string) bool {
	on, malformed := f.malformed[name]
	return malformed && on == stream
}

// observe notes what an Update shows, before it is applied. It reports whether something is certain now that
// was not before.
func (f *faults) observe(u *cache.Update) (certain bool) {
	before, malformed := *f, len(f.malformed)
	if malformed > 0 {
		for _, name := range answered(u) {
			delete(f.malformed, name)
		}
	}
	switch ranOut := len(u.Missing)+len(u.Unanswered) > 0; {
	case u.Full && len(u.Malformed) == 0:
		u.Removed = append(u.Removed, f.lackedBy(u)...)
		*f = faults{}
	case u.Synced || ranOut:
		f.endEarlier(u.Stream)
	case u.First && f.unproven == u.Stream:
		f.unproven = 0
	}
	certain = len(f.malformed) < malformed || f.unreadable != before.unreadable || f.unproven != before.unproven
	f.add(u)
	return certain
}

// lackedBy returns the malformed names that a sound answer with everything lacks: they were seen, and are gone.
func (f *faults) lackedBy(u *cache.Update) (names []string) {
	names = slices.Sorted(maps.Keys(f.malformed))
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(u.Kept, name) })
}

// endEarlier ends what came on earlier streams than this one: it was asked for again, and there was time to answer.
func (f *faults) endEarlier(stream uint64) {
	maps.DeleteFunc(f.malformed, func(_ string, on uint64) bool { return on != stream })
	if f.unproven = 0; f.unreadable != stream {
		f.unreadable = 0
	}
}

// add notes the faults of an Update.
func (f *faults) add(u *cache.Update) {
	for _, name := range u.Malformed {
		if f.malformed == nil {
			f.malformed = make(map[string]uint64)
		}
		f.malformed[name] = u.Stream
	}
	if u.Unreadable {
		f.unreadable = u.Stream
	}
	if u.Unproven {
		f.unproven = u.Stream
	}
}

// answered lists the names for which an Update has an answer that can be used.
func answered(u *cache.Update) (all []string) {
	for _, r := range u.Set {
		all = slices.AppendSeq(all, r.Names())
	}
	for _, r := range u.Negative {
		all = slices.AppendSeq(all, r.Names())
	}
	for _, e := range u.Errors {
		if cache.Resolves(e.Status) {
			all = append(all, e.Name)
		}
	}
	return append(all, u.Removed...)
}

// awaits reports whether a client waits for something uncertain: for a name without an answer because of a
// fault.
func (n *namedLane) awaits() bool {
	for id := range n.x.interest.named() {
		if n.x.answers.open(id) && n.faults.concern(n.Name(id)) {
			return true
		}
	}
	return false
}

// awaits reports the same of the set: it is only from disk.
func (w *wildcardLane) awaits() bool { return w.restored && w.x.interest.wants(wildcardID) }

// spares reports whether the lane keeps resources for an unreadable answer that would have been swept by now.
func (l *lane) spares() bool {
	return l.faults.unreadable != 0 && l.x.interest.subscriptions > 0 && len(l.Unannounced()) > 0
}

// What was loaded from disk is unconfirmed until upstream has spoken of it, or been silent where that
// means that nothing has changed (RECON-19). It may lack the last changes before the process ended. So
// only clients that have nothing of their own are sent it: a client that came with a version of its own
// keeps that, and nothing is removed because a snapshot lacks it (G4). Of names each resource is
// unconfirmed by itself (cache.Table); of a wildcard it is the set.

// agree notes that upstream agrees with the resource that bears a name. Clients that were kept waiting
// because they came with a version of their own are marked.
func (n *namedLane) agree(id cache.ID) {
	if !n.Confirm(id) {
		return
	}
	for name := range n.Own(id).Names() {
		if led, ok := n.Find(name); ok {
			n.x.marks.mark(led, recheck)
		}
	}
}

// agreeBySilence takes the end of timers for an answer: what names lead to, and their stream was shown, has not
// changed (RECON-11). It says nothing of what came malformed, or if a name was unreadable. What that stream has
// removed, and the guard holds back, is not confirmed.
func (n *namedLane) agreeBySilence(u *cache.Update) {
	if n.faults.unreadable == u.Stream {
		return
	}
	for _, name := range slices.Concat(u.Missing, u.Unanswered) {
		id, known := n.Find(name)
		if !known || n.faults.cameOn(u.Stream, name) {
			continue
		}
		for _, r := range n.Answer(id).Resources() {
			if n.Announced(r.Name) {
				n.isAsShown(r, u.Stream)
			}
		}
	}
}

func (n *namedLane) isAsShown(r *cache.Resource, stream uint64) {
	n.guard.takeBack(r.Name, stream)
	if _, held := n.guard.held[r.Name]; !held {
		own, _ := n.Find(r.Name)
		n.agree(own)
	}
}

// conclude confirms the wildcard's set if upstream has sent all of it, nothing is in doubt, and no removal is
// held back. Clients that ask by name are marked, too, since what they resolve to may be in the set.
func (w *wildcardLane) conclude() {
	if w.restored && w.certain() {
		w.restored = false
		w.lookAgain()
		w.x.named.lookAgain()
	}
}

// certain reports whether the set is what upstream has, as far as it can be known.
func (w *wildcardLane) certain() bool {
	return w.complete && len(w.guard.held) == 0 && !w.faults.any()
}

// unconfirmed reports whether a name leads to something unconfirmed.
func (x *index) unconfirmed(id cache.ID) bool {
	if x.wildcard.restored && x.answers.fallsBack(id) {
		return true
	}
	_, unconfirmed := x.named.AnswerAge(id)
	return unconfirmed
}

func (x *index) anyUnconfirmed() bool { return x.named.AnyUnconfirmed() || x.wildcard.restored }

// AnyRestored reports whether anything of the type may be unconfirmed.
func (v View) AnyRestored() bool { return v.x.anyUnconfirmed() }

// Restored reports whether a subscribed name leads to something unconfirmed.
func (v View) Restored(id cache.ID) bool { return v.x.unconfirmed(id) }

// Restored reports whether the set is restored.
func (v Set) Restored() bool { return v.x.wildcard.restored }

// Withhold notes whether something is withheld from the client because it is in doubt.
func (v View) Withhold(withheld bool) {
	switch {
	case withheld && !v.s.withheld:
		v.x.interest.withheld++
	case !withheld && v.s.withheld:
		v.x.interest.withheld--
	}
	v.s.withheld = withheld
}
