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
			l.add(0, x.rejected.At)
		}
		l.add(0, clock(x.times.owed))
		if x.source != nil && x.due() {
			l.add(0, x.source.At)
		}
	}
	return l.since
}

// behind returns how many resources and removals the client lacks, has not acknowledged or has rejected,
// and since when. What has not been sent yet is counted at most up to mostBehind.
func (x *exchange) behind(v fanout.View) (n int, since time.Time) {
	var l lag
	if x.rejectsStill(v) {
		l.add(x.rejected.Count, x.rejected.At)
	}
	for _, u := range x.unacked {
		l.add(u.listing.Count, clock(x.times.owed))
	}
	for change := range x.waiting(v, mostBehind) {
		at, _ := x.group.Hub.Arrived(change)
		l.add(1, at)
	}
	return l.n, l.since
}

// mostBehind bounds the changes that are looked at for one client and type: nobody needs to know more exactly.
const mostBehind = 1000

// lag adds up with how much a client is behind, and since when.
type lag struct {
	n     int
	since time.Time
}

func (l *lag) add(n int, at time.Time) {
	l.n += n
	if !at.IsZero() && (l.since.IsZero() || at.Before(l.since)) {
		l.since = at
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
