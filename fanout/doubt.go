package fanout

import (
	"maps"
	"slices"

	"github.com/xds-relay/xds-relay/cache"
)

// A resource that arrives with a fault cannot be used, but it shows that its name exists. A client
// that came with a copy keeps it until upstream sends something usable (ERR-10). Likewise, a
// stream that has carried nothing of a type proves little by its silence about one name
// (MISS-4). Both facts are kept here, beside the names, and outlive the stream.

// doubts are the faults that arrived on one lane.
type doubts struct {
	// faulty are the names that last arrived with a fault, with the stream on which they did.
	faulty map[string]uint64
	// hidden is the last stream on which a fault made the name itself unreadable, so that it may
	// concern any name; zero if there was none.
	hidden uint64
	// absent are the names that upstream has since said do not exist.
	absent map[string]bool
	// mayBeHidden are the names that the unreadable answer may have been for: those that had been
	// asked for by then and had no answer. The value is the stream on which the name's timer has run
	// out since, without effect because of the fault, or zero. Of the names in faulty it has those whose
	// timer has run out.
	mayBeHidden map[string]uint64
}

func (d *doubts) any() bool { return d.hidden != 0 || len(d.faulty) > 0 }

// beside reports whether a resource may exist that is not in the Table.
func (d *doubts) beside(t *cache.Table) bool {
	for name := range d.faulty {
		if !t.Has(name) {
			return true
		}
	}
	return d.hidden != 0
}

// concern reports whether a name may exist although there is no copy of it.
func (d *doubts) concern(name string) bool {
	_, faulty := d.faulty[name]
	return faulty || d.hidden != 0 && !d.absent[name]
}

// since reports whether a fault that concerns a name came on this stream, so that the stream's
// silence about the name proves nothing.
func (d *doubts) since(name string, stream uint64) bool {
	on, faulty := d.faulty[name]
	return faulty && on == stream || d.mayHaveHidden(name, stream)
}

// mayHaveHidden reports whether this stream sent an unreadable answer that may have been for the name.
func (d *doubts) mayHaveHidden(name string, stream uint64) bool {
	_, may := d.mayBeHidden[name]
	return may && d.hidden == stream
}

// observe notes the faults of an Update, and drops the doubts that it settles. ended reports whether
// any were dropped.
func (d *doubts) observe(u *cache.Update) (ended bool) {
	sound := u.Stream != 0 && !u.Hidden && len(u.Faulty) == 0
	before, hidden := len(d.faulty), d.hidden
	if d.any() {
		for _, name := range answered(u) {
			delete(d.faulty, name)
		}
		listsAll := u.Full || u.Synced && !d.cameOn(u.Stream)
		if sound && listsAll {
			for name, overdue := range d.mayBeHidden {
				if overdue == u.Stream {
					u.Missing = append(u.Missing, name)
				}
			}
			*d = doubts{}
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
		d.hidden, d.absent = u.Stream, make(map[string]bool)
	} else if d.hidden != 0 {
		for _, name := range u.Removed {
			d.absent[name] = true
		}
		for _, r := range u.Set {
			delete(d.absent, r.Name)
		}
	}
	return ended
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

// cameOn reports whether any of the faults came on this stream.
func (d *doubts) cameOn(stream uint64) bool {
	for _, on := range d.faulty {
		if on == stream {
			return true
		}
	}
	return d.hidden == stream
}

// timeOut drops the doubts of earlier streams. A stream without a hidden fault has been asked for
// all names and has had time to answer. Names that nobody asks for any more are dropped, too.
func (d *doubts) timeOut(stream uint64) (ended bool) {
	before := len(d.faulty)
	maps.DeleteFunc(d.faulty, func(_ string, on uint64) bool { return on != stream })
	ended = d.hidden != 0 || len(d.faulty) < before
	maps.DeleteFunc(d.mayBeHidden, func(_ string, ranOut uint64) bool { return ranOut != stream })
	d.hidden, d.absent = 0, nil
	return ended
}

// doubted reports whether a name without a copy may exist all the same.
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

// observe notes what an Update says about names that are in doubt or restored, before it is applied.
func (n *namedLane) observe(u *cache.Update) {
	if len(u.Missing)+len(u.Unanswered) > 0 && n.doubts.hidden != u.Stream && n.doubts.timeOut(u.Stream) {
		n.lookAgain()
	}
	if u.Hidden {
		n.noteMayBeHidden()
	}
	if len(n.silence.mute) > 0 {
		n.silence.observe(u)
	}
	n.agreeBySilence(u)
}

// noteMayBeHidden notes the names that an unreadable answer may have been for: those that were asked for
// by then and whose answer is missing or not announced.
func (n *namedLane) noteMayBeHidden() {
	before := n.doubts.mayBeHidden
	n.doubts.mayBeHidden = make(map[string]uint64)
	for id := range cache.ID(n.Cap()) {
		if n.Asked(id) && (n.unsettled(id) || n.x.unconfirmed(id)) {
			n.doubts.mayBeHidden[n.Name(id)] = before[n.Name(id)]
		}
	}
}

// unsettled reports whether a name's answer is missing or not announced.
func (n *namedLane) unsettled(id cache.ID) bool {
	return !n.Answered(id) || len(n.UnannouncedAnswers(n.Name(id))) > 0
}

// awaitsUncertain reports whether a client waits for a name that has no answer because of a fault,
// or only one that would have been swept by now.
func (n *namedLane) awaitsUncertain() bool {
	for id := range n.x.interest.named() {
		if !n.unsettled(id) {
			continue
		}
		name := n.Name(id)
		if n.doubts.mayBeHidden[name] != 0 || n.doubts.concern(name) && !n.Answered(id) {
			return true
		}
	}
	return false
}

// overdue returns the resources that a name leads to and that upstream has not announced for too
// long (RECON-12). A resource stays if a fault on the same stream may have concerned it.
func (n *namedLane) overdue(name string, stream uint64) (names []string) {
	d := &n.doubts
	if d.mayHaveHidden(name, stream) {
		d.mayBeHidden[name] = stream
		return nil
	}
	return slices.DeleteFunc(n.UnannouncedAnswers(name), func(name string) bool { return d.since(name, stream) })
}
