package fanout

import (
	"slices"

	"github.com/xds-relay/xds-relay/cache"
)

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

// agreeBySilence confirms what names lead to whose timers have run out, if their stream was shown it. It is not
// confirmed if that stream has sent it with a fault, or has removed it, and the guard holds that back.
func (n *namedLane) agreeBySilence(u *cache.Update) {
	if !n.AnyUnconfirmed() {
		return
	}
	for _, name := range slices.Concat(u.Missing, u.Unanswered) {
		id, ok := n.Find(name)
		if !ok || n.faults.unreadable == u.Stream || n.faults.cameOn(u.Stream, name) {
			continue
		}
		for _, r := range n.Answer(id).Resources() {
			held, removed := n.guard.held[r.Name]
			if own, _ := n.Find(r.Name); n.Announced(r.Name) && !(removed && held.stream == u.Stream) {
				n.agree(own)
			}
		}
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
