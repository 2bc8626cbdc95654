package fanout

import (
	"cmp"
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// OfType is one type of a group, for the upstream side and for people.
type OfType struct {
	hub *Hub
	url cache.TypeURL
}

// Of returns the type with that URL.
func (h *Hub) Of(t cache.TypeURL) OfType { return OfType{h, t} }

// is reports whether such is true of the type. It is not if nothing is known of the type.
func (o OfType) is(such func(*index) bool) (is bool) {
	o.hub.types.look(o.url, func(x *index) { is = such(x) })
	return is
}

// Served reports whether the wildcard's set is sent to any clients: it is complete, or early.
func (o OfType) Served() bool { return o.is(func(x *index) bool { return x.wildcard.isFor(false) }) }

// Synced reports whether the wildcard set of a type has been complete (RECON-16).
func (o OfType) Synced() bool { return o.is(func(x *index) bool { return x.wildcard.synced }) }

// Unproven reports whether upstream's silence about the wildcard's set leaves its content open: the
// set is incomplete or restored, has members that upstream has neither announced nor been shown, or
// may have others that clients came with.
func (o OfType) Unproven() bool {
	return o.is(func(x *index) bool {
		w := &x.wildcard
		doubted := x.interest.withheld > 0 && w.faults.any()
		open := w.restored || !w.synced || len(w.Unannounced()) > 0
		return w.pinned && (open || doubted)
	})
}

// Remembers reports whether resources that leave the type are remembered, so that Lapse has to be called.
func (o OfType) Remembers() bool { return o.is(func(x *index) bool { return x.leaving.keep > 0 }) }

// SendsUnasked reports whether the stream that carries a type's names has sent resources that nobody had asked for.
func (o OfType) SendsUnasked() bool {
	return o.is(func(x *index) bool { return x.unsolicited.unasked })
}

// Returns reports whether clients want a name again that was given up without an unsubscribe (UP-9).
func (o OfType) Returns(name string) bool {
	return o.is(func(x *index) bool {
		return x.unsolicited.unasked && x.unsolicited.givenUp[name] && x.desiredName(name)
	})
}

// Overdue returns the names that lead to something which the stream has not announced, although it
// had time to. The resources of now may be swept; none is if a fault on the stream hides a name. Those of later have to stay for now, because the
// stream has answered the name with an error. NOT_FOUND is no such error, nor is one that came on
// an earlier stream.
func (o OfType) Overdue(names []string, stream uint64) (now, later []string) {
	o.hub.types.look(o.url, func(x *index) {
		for _, name := range names {
			if x.named.faults.unreadable == stream || len(x.named.UnannouncedAnswers(name)) == 0 {
				continue
			}
			id, _ := x.named.Find(name)
			if err := x.named.Answer(id).Error; err != nil && err.GetCode() != cache.NotFound && x.named.refused[name] == stream {
				later = append(later, name)
			} else {
				now = append(now, name)
			}
		}
	})
	return now, later
}

// Silent returns the names that clients subscribe to and that upstream has not answered on their
// own lane. Those in delivered were sent on this stream, but the relay has no copy any more: a server
// that remembers believes that it delivered them (UP-19).
func (o OfType) Silent(names []string, stream uint64) (silent, delivered []string) {
	o.hub.types.look(o.url, func(x *index) {
		for _, name := range names {
			if id, ok := x.named.silent(name, stream); !ok || !x.interest.wants(id) {
				continue
			}
			if x.unsolicited.has(name, stream) {
				delivered = append(delivered, name)
			} else {
				silent = append(silent, name)
			}
		}
	})
	return silent, delivered
}

// Lacking returns the names that upstream does not have, or has not answered. An error is an answer.
func (o OfType) Lacking(names []string, stream uint64) (lacking []string) {
	o.hub.types.look(o.url, func(x *index) {
		for _, name := range names {
			_, silent := x.named.silent(name, stream)
			if id, ok := x.named.Find(name); ok && (silent || x.named.Answer(id).State == cache.Absent) {
				lacking = append(lacking, name)
			}
		}
	})
	return lacking
}

// Absences returns the subscribed names that upstream does not have, and those that it has or may have by now, of
// the names of which it had something else to say before (UP-19): of at most so many, and more says whether there are
// others. all: of all names, as for a new stream.
func (o OfType) Absences(all bool, most int) (absent, others []string, more bool) {
	o.hub.types.look(o.url, func(x *index) {
		turned := &x.named.turned
		if all {
			for id := range x.interest.named() {
				turned.add(id, struct{}{})
			}
		}
		for _, e := range turned.take(most) {
			switch name := x.named.Name(e.id); {
			case name == "": // the ID was given back
			case x.named.Led(e.id) != cache.Absent:
				others = append(others, name)
			case x.interest.wants(e.id):
				absent = append(absent, name)
			}
		}
		more = turned.len > 0
	})
	return absent, others, more
}

// Early splits names. Copies that early lead to may be old answers, which their stream will not repeat (UP-19).
func (o OfType) Early(names []string, stream uint64) (early, rest []string) {
	o.hub.types.look(o.url, func(x *index) {
		for _, name := range names {
			if x.unsolicited.stream == stream && slices.ContainsFunc(x.named.UnannouncedAnswers(name), func(of string) bool { return x.unsolicited.early[of] }) {
				early = append(early, name)
			} else {
				rest = append(rest, name)
			}
		}
	})
	return early, rest
}

// SetSuspect sets whether upstream may be refusing a type. Names of such a type do not linger: they
// are given up with their last client (H-41).
func (o OfType) SetSuspect(suspect bool) {
	o.hub.types.change(o.url, func(x *index) {
		if x.suspect = suspect; suspect {
			x.linger.limit(0)
		}
	})
	o.hub.wanted.notify()
	o.hub.types.drop(o.url)
}

// AnsweredBy reports whether something is here that an entry has sent, now or before a restart (UP-21).
func (o OfType) AnsweredBy(entry string) bool {
	return o.is(func(x *index) bool {
		return slices.ContainsFunc([]*cache.Table{&x.named.Table, &x.wildcard.Table}, func(t *cache.Table) bool {
			origin, _ := t.Settled()
			return origin.Entry == entry && t.Len() > 0
		})
	})
}

// Asker returns, of the holders whose clients subscribe to the type, one whose turn is longest ago;
// turns without an entry are 0. A type that only lingers is nobody's, which is the holder "" (UP-21).
func (o OfType) Asker(turns map[string]uint64) (holder string, turn uint64) {
	first := true
	o.hub.types.look(o.url, func(x *index) {
		for h := range x.interest.holders {
			before := cmp.Or(cmp.Compare(turns[h], turn), cmp.Compare(h, holder)) < 0
			if first || before {
				holder, turn, first = h, turns[h], false
			}
		}
	})
	if first {
		turn = turns[holder]
	}
	return holder, turn
}

// Describe lists a type's names that match, in order, at most limit of them, starting just after a Place. more
// reports whether others follow. It is for people, not for the data path: each call sorts all
// names.
func (o OfType) Describe(after Place, limit int, match func(name string) bool) (page []Description, more bool) {
	var at []Place
	o.hub.types.look(o.url, func(x *index) { at = places(x, after, match) })
	slices.SortFunc(at, Place.compare)
	if more = len(at) > limit; more {
		at = at[:limit]
	}
	o.hub.types.look(o.url, func(x *index) { page = describe(x, at) })
	return page, more
}

// DescribeAll lists all names of a type at one instant, in order (CSDS-6).
func (o OfType) DescribeAll() (all []Description) {
	o.hub.types.look(o.url, func(x *index) { all = describe(x, places(x, Place{}, func(string) bool { return true })) })
	slices.SortFunc(all, func(a, b Description) int { return a.compare(b.Place) })
	return all
}

// Release carries out all held-back removals of a type on behalf of an operator, and returns how many.
func (o OfType) Release(now time.Time) (count int) {
	o.hub.types.change(o.url, func(x *index) {
		x.leaving.now = now
		count = x.letGo(func(l *lane) departures { return l.guard.release() })
	})
	return count
}
