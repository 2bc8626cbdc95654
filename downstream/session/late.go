package session

import (
	"iter"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

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
		for change := range x.waiting(v) {
			if at, _ := x.group.Hub.Arrived(change); !at.IsZero() && at.Before(before) {
				late = true
				return
			}
		}
	})
	return late
}

// waiting yields some of the changes that the client has not been sent.
func (x *exchange) waiting(v fanout.View) iter.Seq[cache.Seq] {
	return func(yield func(cache.Seq) bool) {
		for _, id := range firstOf(x.changed.items, mostLate) {
			if !yield(v.Answer(id).Seq) {
				return
			}
		}
		if !x.members || x.sentTo >= unseen {
			return
		}
		left := mostLate
		for change := range v.Set().Since(x.sentTo) {
			if left--; left < 0 || !yield(change.Seq) {
				return
			}
		}
	}
}

// GroupOf is the name of the group that serves a type; empty: the client has not asked for the type.
func (s *Session) GroupOf(t cache.TypeURL) string {
	if st := s.find(t); st != nil {
		return st.base().group.Hub.Name()
	}
	return ""
}

// Rejects reports whether the client's last word on a type is a rejection, and the rejection still stands.
func (s *Session) Rejects(t cache.TypeURL) bool {
	st := s.find(t)
	return st != nil && st.base().rejects()
}
