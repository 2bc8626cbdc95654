package fanout

import (
	"iter"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// wildcardLane is what upstream sends of all of a type: the wildcard's set.
type wildcardLane struct {
	lane
	// pinned: a client wanted it, and Changes has not given it up. asked: upstream has been asked
	// for it. synced: all of it is here, as it was once (RECON-16, RECON-17). complete: upstream has sent
	// all of it since the process began.
	pinned, asked, synced, complete bool
	// early: it is not known to be complete yet, and is for clients that came with nothing (RECON-16).
	early bool
	// sweeping: an origin announces a set of its own in place of one that was complete, and what it does not
	// announce is swept when its set is complete (RECON-12).
	sweeping bool
	// restored: the set is from disk, as it was at asOf, and upstream has not confirmed it (RECON-19).
	restored bool
	asOf     time.Time
	board    board

	// Whether the set has changed, TTLs in it were renewed, and what clients drop by themselves was repeated,
	// since the clients were last marked.
	changed, renewed, repeated bool
}

func (w *wildcardLane) desired() (names []string) {
	if w.x.desired(wildcardID) {
		names = []string{Wildcard}
	}
	return names
}

func (w *wildcardLane) audience() iter.Seq2[cache.ID, []*Subscription] {
	return func(yield func(cache.ID, []*Subscription) bool) {
		if subs := w.x.interest.of(wildcardID); len(subs) > 0 {
			yield(wildcardID, subs)
		}
	}
}

func (w *wildcardLane) leadsHere(named cache.ID) bool { return w.x.answers.open(named) }

func (w *wildcardLane) hasSpoken() bool { return w.synced && len(w.Unannounced()) == 0 }

// isFor reports whether the set can be sent to a client that came with versions, or to one that came with nothing.
func (w *wildcardLane) isFor(returns bool) bool { return w.synced || w.early && !returns }

// sendEarly lets clients that came with nothing have what is here of the set, although more of it may follow.
func (w *wildcardLane) sendEarly() {
	if w.pinned && !w.synced {
		w.early, w.changed = true, true
		w.tell()
	}
}

func (w *wildcardLane) takeIn(u *cache.Update) (a Applied) {
	if !w.pinned {
		return a // a late answer: the wildcard was given up meanwhile (UP-8, H-32)
	}
	w.begin(u)
	for _, r := range u.Set {
		w.set(r, u)
	}
	w.renewed = w.heartbeats(u) || w.renewed
	all := w.departures(u)
	if u.Sweep && w.faults.unreadable != u.Stream {
		all.add(w.Unannounced(), cache.Sweep)
	}
	a.Held = w.depart(u, all)
	if u.Synced {
		w.changed, w.sweeping = w.changed || !w.synced, false
		w.synced, w.early, w.complete = true, false, true
	}
	if u.Synced || u.Unchanged {
		for name := range w.guard.held {
			w.guard.takeBack(name, u.Stream)
		}
	}
	w.conclude()
	w.x.readers.prune()
	w.tell()
	return a
}

func (w *wildcardLane) set(r cache.Received, u *cache.Update) {
	seq := w.x.next()
	_, changed := w.Set(r.Resource, r.Upstream, seq)
	if changed {
		w.x.markFallback(r.Name)
		w.changed = true
	}
	renews := w.Lease(r.Name, r.TTL, u.At, seq)
	switch {
	case w.Repeat(r.Name, seq):
		w.repeated = true
		w.markRenewed(r.Resource, repeated)
	case renews:
		w.renewed = true
		w.markRenewed(r.Resource, renewed)
	}
}

func (w *wildcardLane) unannounced() []string { return w.Unannounced() }

// remove takes a name out of the set.
func (w *wildcardLane) remove(name string, cause cache.Cause) {
	delete(w.guard.held, name)
	if !w.Has(name) {
		return // it never was a member; an alias of one is none (NAME-7)
	}
	w.Remove(name, cause, w.x.next())
	w.x.markFallback(name)
	w.changed = true
}

// torn reports whether the set has some resources that replace others, which are still to be swept. One
// response to a client carries both (ORDER-2).
func (w *wildcardLane) torn() bool { return w.changed && w.sweeping && w.x.url.ReplacesAtOnce() }

// tell marks the wildcard for its clients if the set has changed or members of it were renewed. Names
// are marked separately.
func (w *wildcardLane) tell() {
	if w.changed && !w.torn() {
		w.x.marks.mark(wildcardID, content)
		w.changed = false
	}
	if w.renewed {
		w.x.marks.mark(wildcardID, renewed)
	}
	if w.repeated {
		w.x.marks.mark(wildcardID, repeated)
	}
	w.renewed, w.repeated = false, false
}

// begins notes that an origin is asked for a set of its own. The first one replaces nothing.
func (w *wildcardLane) begins() { w.sweeping = w.synced }

// over notes that a stream has ended. If it was announcing a set, clients are sent what has come of that: the
// rest may be long in coming.
func (w *wildcardLane) over(stream uint64) {
	if w.guard.stream == stream {
		w.sweeping = false
		w.tell()
	}
}

func (w *wildcardLane) fails() {
	if !w.synced {
		w.x.marks.mark(wildcardID, content)
	}
}

// forget drops what is known of the set, which nobody wants (UP-8, H-18).
func (w *wildcardLane) forget() {
	w.x.hub.forgotten.Add(1)
	w.x.unwanted.noteSet()
	w.x.endFallbacks()
	was := w.lane
	*w = wildcardLane{lane: w.x.newLane(w.at, w)}
	w.unavailable, w.dirty = was.unavailable, was.dirty // these are for the next client that wants it
}
