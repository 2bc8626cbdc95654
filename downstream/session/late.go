package session

import (
	"iter"
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// How late a client is: for people with all that it lacks (behind), for metrics without a look at names (Since), and for
// events only where it is late (Late).

// Since returns since when the client has not been in step with one of its types; zero: it is in step, or what it
// lacks is about to be sent. Unlike Describe it looks at no name, so it can be called often.
func (s *Session) Since() time.Time {
	var l lag
	for _, st := range s.states {
		x := st.base()
		if x.rejects() {
			l.add(x.rejected.Since)
		}
		l.add(clock(x.times.owed))
		if x.source != nil && x.due() {
			l.add(x.source.At)
		}
	}
	return time.Time(l)
}

// behind returns how many resources and removals the client lacks, has not acknowledged or has rejected,
// and since when. Of each lane at most mostBehind changes are looked at.
func (x *exchange) behind(v fanout.View) (n int, since time.Time) {
	var l lag
	rejects := x.rejectsStill(v)
	if rejects {
		l.add(x.rejected.Since)
	}
	l.add(clock(x.times.owed))
	for change := range x.waiting(v, mostBehind) {
		at, _ := x.group.Hub.Arrived(change)
		l.add(at)
	}
	return x.lacksMembers(v, rejects) + x.lacksNames(v, rejects), time.Time(l)
}

// mostBehind bounds the changes that are looked at for one client and type: nobody needs to know more exactly.
const mostBehind = 1000

// lacksMembers returns how many members of the wildcard's set have changed, or left it, and are not accepted as they are.
func (x *exchange) lacksMembers(v fanout.View, rejects bool) (n int) {
	if !wildcard(v) {
		return 0
	}
	left := mostBehind
	for c := range v.Set().Since(x.acceptedTo(rejects)) {
		if left--; left < 0 {
			return n
		}
		unaccepted := c.Seq > x.ackedTo && len(x.unacked) > 0
		if c.Seq > x.sentTo || unaccepted || x.hasRejected(c.Seq) {
			n++
		}
	}
	return n
}

// acceptedTo is the position up to which the client has accepted all changes of the wildcard's set.
func (x *exchange) acceptedTo(rejects bool) cache.Seq {
	to := min(x.ackedTo, x.sentTo)
	if rejects {
		to = min(to, x.rejected.From)
	}
	return to
}

// Lacks describes the resources of a type that the client has not accepted as they are. Of the client's names, of those with a
// record of their own and of the changes of the wildcard's set it looks at mostBehind each, so unlike Names it costs little
// where the set is large. A removal that waits for other types may be left out.
func (s *Session) Lacks(t cache.TypeURL) (names []ClientName) {
	st := s.find(t)
	if st == nil {
		return nil
	}
	x := st.base()
	x.sub.Read(func(v fanout.View) {
		for _, name := range distinct(x.mayLack(v)) {
			if n, some := describeName(st, v, name); some && n.Step != StepSynced {
				names = append(names, n)
			}
		}
	})
	return names
}

// mayLack returns the names that Lacks looks at, some of them more than once.
func (x *exchange) mayLack(v fanout.View) (names []string) {
	for _, id := range v.Names()[:min(len(v.Names()), mostBehind)] {
		names = append(names, v.Name(id))
	}
	left := mostBehind
	for e := range x.exact.all() {
		if left--; left < 0 {
			break
		}
		names = append(names, e.name)
	}
	if !wildcard(v) {
		return names
	}
	left = mostBehind
	for c := range v.Set().Since(x.acceptedTo(x.rejectsStill(v))) {
		if left--; left < 0 {
			break
		}
		names = append(names, c.Name)
	}
	return names
}

// lacksNames returns for how many of the client's names something waits, or was sent and is not accepted. One that was sent
// several times may be counted so often.
func (x *exchange) lacksNames(v fanout.View, rejects bool) int {
	n := len(x.changed.items)
	if ids := v.Names(); rejects {
		for _, id := range ids[:min(len(ids), mostBehind)] {
			if x.hasRejected(v.Answer(id).Seq) {
				n++
			}
		}
	}
	for _, u := range x.unacked {
		n += u.listing.Count
	}
	return min(n, len(v.Names()))
}

// lag is since when a client is behind; zero: it is not.
type lag time.Time

func (l *lag) add(at time.Time) {
	if was := time.Time(*l); !at.IsZero() && (was.IsZero() || at.Before(was)) {
		*l = lag(at)
	}
}

// Late is a type that a client is not in step with.
type Late struct {
	Type   cache.TypeURL
	Group  string // that serves it, as in logs
	Behind int    // as in ClientType
	// Owes is since when the client owes an ACK. If it is zero, the client owes none, and has not been sent
	// something that is older than was asked. The client may have asked for that only now.
	Owes time.Time
}

// Late returns the types for which the client has owed an ACK since before a time, or which have something older that it has not
// been sent. What it has rejected is not late. It may be called often: it looks closely only at types that are late.
func (s *Session) Late(before time.Time) (late []Late) {
	for _, st := range s.states {
		if x := st.base(); x.late(before) {
			late = append(late, Late{x.url, x.group.Hub.Name(), x.describe().Behind, clock(x.times.owed)})
		}
	}
	return late
}

// mostLate bounds the changes that late looks at.
const mostLate = 32

func (x *exchange) late(before time.Time) (late bool) {
	switch {
	case len(x.unacked) > 0:
		return x.times.owed < before.UnixNano()
	case !x.due(), x.rejects():
		return false
	}
	x.sub.Read(func(v fanout.View) {
		for change := range x.waiting(v, mostLate) {
			if at, _ := x.group.Hub.Arrived(change); !at.IsZero() && at.Before(before) {
				late = true
				return
			}
		}
	})
	return late
}

// waiting yields changes that the client has not been sent: at most so many of names, and of members.
func (x *exchange) waiting(v fanout.View, most int) iter.Seq[cache.Seq] {
	return func(yield func(cache.Seq) bool) {
		for _, id := range x.changed.items[:min(len(x.changed.items), most)] {
			if !yield(v.Answer(id).Seq) {
				return
			}
		}
		if !x.members || x.sentTo == unseen {
			return
		}
		left := most
		for change := range v.Set().Since(x.sentTo) {
			if left--; left < 0 || !yield(change.Seq) {
				return
			}
		}
	}
}

// Rejects reports whether the client's last word on a type is a rejection, and the rejection still stands.
func (s *Session) Rejects(t cache.TypeURL) bool {
	st := s.find(t)
	return st != nil && st.base().rejects()
}

// rejects reports whether the client's last answer was a rejection, or a Delta client's last rejection still
// stands: the ACK of a later response says nothing of what that did not carry.
func (x *exchange) rejects() (still bool) {
	if x.rejected != nil {
		x.sub.Read(func(v fanout.View) { still = x.rejectsStill(v) })
	}
	return still
}

// rejectsStill does the same where the type's lock is held.
func (x *exchange) rejectsStill(v fanout.View) bool {
	switch {
	case x.rejected == nil:
		return false
	case x.rejected.To > x.ackedTo:
		return true
	}
	return x.delta && slices.ContainsFunc(x.rejected.First, func(name string) bool {
		r := v.Resource(name)
		return r != nil && x.hasRejected(v.Changed(r))
	})
}
