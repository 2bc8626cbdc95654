package fanout

import (
	"maps"
	"slices"

	"github.com/xds-relay/xds-relay/cache"
)

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

// awaitsUncertain reports whether a client waits for a name that has no answer because of a fault,
// or only one that would have been swept by now.
func (n *namedLane) awaitsUncertain() bool {
	for id := range n.x.interest.named() {
		name := n.Name(id)
		if n.x.answers.open(id) && n.faults.concern(name) {
			return true
		}
		if n.faults.unreadable != 0 && len(n.UnannouncedAnswers(name)) > 0 {
			return true
		}
	}
	return false
}

// overdue returns the resources that a name leads to and that upstream has not announced for too
// long (RECON-12). They stay if a fault on the same stream hides a name.
func (n *namedLane) overdue(name string, stream uint64) (names []string) {
	if n.faults.unreadable == stream {
		return nil
	}
	return n.UnannouncedAnswers(name)
}
