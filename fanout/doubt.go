package fanout

import (
	"maps"
	"slices"

	"github.com/xds-relay/xds-relay/cache"
)

// What upstream said and cannot be used says at least that a name exists: whoever brought a
// copy of it keeps that until upstream has said something that can be used (ERR-10). And a
// stream that has carried nothing of a type proves little by its silence about one name of it
// (MISS-4). Both facts stand here, beside the names, and outlive the stream.

// doubts are the faults that one lane has met.
type doubts struct {
	// faulty are the names whose last word was a fault, with the stream on which it came.
	faulty map[string]uint64
	// hidden is the last stream on which a fault hid its name, so that it may concern any;
	// zero: there is none.
	hidden uint64
	// absent are the names that upstream has said since then not to exist.
	absent map[string]struct{}
	// suspected are the names without an answer that had been asked for by then, by the stream:
	// it may have been theirs. overdue are those whose timers have run out in vain because of
	// that.
	suspected map[string]uint64
	overdue   map[string]struct{}
}

func (d *doubts) any() bool { return d.hidden != 0 || len(d.faulty) > 0 }

// beside: something may exist that is not in a set.
func (d *doubts) beside(t *cache.Table) bool {
	for name := range d.faulty {
		if !t.Has(name) {
			return true
		}
	}
	return d.hidden != 0
}

// concern: a name may exist, though there is no copy of it.
func (d *doubts) concern(name string) bool {
	_, faulty := d.faulty[name]
	_, absent := d.absent[name]
	return faulty || d.hidden != 0 && !absent
}

// since: a fault that concerns a name came on a stream, whose silence therefore says
// nothing of it.
func (d *doubts) since(name string, stream uint64) bool {
	on, faulty := d.faulty[name]
	return faulty && on == stream || d.suspects(name, stream)
}

// suspects: it was one that hid its name.
func (d *doubts) suspects(name string, stream uint64) bool {
	on, suspected := d.suspected[name]
	return suspected && on == stream
}

// hears takes in what an Update says of faults. ended: there is less doubt than before.
func (d *doubts) hears(u *cache.Update) (ended bool) {
	sound := u.Stream != 0 && !u.Hidden && len(u.Faulty) == 0
	before, hidden := len(d.faulty), d.hidden
	if d.any() {
		d.answers(u)
		if sound && u.Full { // this is all there is
			u.Missing = slices.AppendSeq(u.Missing, maps.Keys(d.overdue))
			*d = doubts{}
		}
		if sound && u.Synced {
			d.complete(u.Stream)
		}
	}
	ended = len(d.faulty) < before || hidden != 0 && d.hidden == 0
	for _, name := range u.Faulty {
		if d.faulty == nil {
			d.faulty = make(map[string]uint64)
		}
		d.faulty[name] = u.Stream
	}
	if u.Hidden {
		d.hidden, d.absent = u.Stream, nil
	} else if d.hidden != 0 {
		d.denies(u)
	}
	return ended
}

// answers drops the names of which something is said that can be used.
func (d *doubts) answers(u *cache.Update) {
	if len(d.faulty) == 0 {
		return
	}
	for _, r := range u.Set {
		for name := range names(r.Resource) {
			delete(d.faulty, name)
		}
	}
	for _, r := range u.Negative {
		for name := range names(r) {
			delete(d.faulty, name)
		}
	}
	for _, name := range u.Removed {
		delete(d.faulty, name)
	}
	for _, e := range u.Errors {
		if cache.Resolves(e.Status) {
			delete(d.faulty, e.Name)
		}
	}
}

// denies notes what is said not to exist.
func (d *doubts) denies(u *cache.Update) {
	if d.absent == nil {
		d.absent = make(map[string]struct{})
	}
	for _, name := range u.Removed {
		d.absent[name] = struct{}{}
	}
	for _, r := range u.Set {
		delete(d.absent, r.Name)
	}
}

// complete: a stream has shown a whole set. If it was sound, what was faulty on those before
// it is not in doubt any more.
func (d *doubts) complete(stream uint64) {
	if d.hidden == stream {
		return
	}
	for _, on := range d.faulty {
		if on == stream {
			return
		}
	}
	*d = doubts{}
}

// timesOut: all names were asked for again on a stream that has hidden none, and there was time to
// answer. What was in doubt before that is so no more, the names that nobody asks for included.
func (d *doubts) timesOut(stream uint64) (ended bool) {
	before := len(d.faulty)
	maps.DeleteFunc(d.faulty, func(_ string, on uint64) bool { return on != stream })
	ended = d.hidden != 0 || len(d.faulty) < before
	d.hidden, d.absent, d.suspected, d.overdue = 0, nil, nil, nil
	return ended
}

// doubted: a name without a copy may exist all the same.
func (n *namedLane) doubted(id cache.ID, a cache.Answer) bool {
	name := n.Name(id)
	if _, mute := n.silence.mute[name]; mute && a.State == cache.Absent {
		return true
	}
	if _, faulty := n.doubts.faulty[name]; faulty {
		return a.State != cache.Absent || a.Cause != cache.TTLExpired
	}
	return a.State == cache.Unknown && n.doubts.hidden != 0
}

// hears takes in what an Update says of what is in doubt, or was loaded from disk, before it is applied.
func (n *namedLane) hears(u *cache.Update) (look bool) {
	d := &n.doubts
	if len(u.Missing)+len(u.Unanswered) > 0 && d.hidden != u.Stream {
		look = d.timesOut(u.Stream)
	}
	if u.Hidden {
		n.suspectAll(u.Stream)
	}
	if len(n.silence.mute) > 0 {
		n.silence.hears(u)
	}
	n.x.restored.hears(u)
	return look
}

// suspectAll notes that an answer which nobody could read may have been that of any name that
// has none, or only one that is not confirmed. What is asked for later it cannot have answered.
func (n *namedLane) suspectAll(stream uint64) {
	d := &n.doubts
	d.suspected, d.overdue = make(map[string]uint64), make(map[string]struct{})
	for id := range cache.ID(n.Cap()) {
		if n.Asked(id) && (n.unsettled(id) || n.x.restored.leads(id)) {
			d.suspected[n.Name(id)] = stream
		}
	}
}

// unsettled: a name has no answer, or one that is not confirmed.
func (n *namedLane) unsettled(id cache.ID) bool {
	return !n.Answered(id) || len(n.UnconfirmedAnswers(n.Name(id))) > 0
}

// awaitsDoubtful: somebody wants a name that has no answer because of a fault, or only one that
// would have gone by now.
func (n *namedLane) awaitsDoubtful() bool {
	for id := range n.x.interest.named() {
		if !n.unsettled(id) {
			continue
		}
		name := n.Name(id)
		if _, overdue := n.doubts.overdue[name]; overdue || n.doubts.concern(name) && !n.Answered(id) {
			return true
		}
	}
	return false
}

// overdue are the resources that a name leads to and that upstream has not spoken of for too
// long (RECON-12). What a fault on the same stream may have been about stays.
func (n *namedLane) overdue(name string, stream uint64) (names []string) {
	d := &n.doubts
	if d.suspects(name, stream) {
		d.overdue[name] = struct{}{}
		return nil
	}
	return slices.DeleteFunc(n.UnconfirmedAnswers(name), func(name string) bool { return d.since(name, stream) })
}
