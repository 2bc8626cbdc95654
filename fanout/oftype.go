package fanout

import (
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// OfType is one type of a group, for those who carry it upstream and for people.
type OfType struct {
	hub *Hub
	url cache.TypeURL
}

// Of is the type of that URL.
func (h *Hub) Of(t cache.TypeURL) OfType { return OfType{h, t} }

// Synced reports whether the wildcard set of a type has been complete (RECON-16).
func (o OfType) Synced() (synced bool) {
	o.hub.types.look(o.url, func(x *index) { synced = x.wildcard.synced })
	return synced
}

// Unproven reports whether the wildcard's set of a type is not complete, or only from disk, or
// has members that upstream has not announced and was not shown, or may have others that clients
// came with: silence about it leaves open what it is.
func (o OfType) Unproven() (unproven bool) {
	o.hub.types.look(o.url, func(x *index) {
		w := &x.wildcard
		doubted := x.interest.withheld > 0 && w.doubts.any()
		unproven = w.held && (!w.synced || x.restored.set || doubted || len(w.Unconfirmed()) > 0)
	})
	return unproven
}

// Doubtful reports whether there is something that names of a type lead to and that was
// loaded, and upstream has not confirmed yet, or whose removal is held back (H-22).
func (o OfType) Doubtful() (doubtful bool) {
	o.hub.types.look(o.url, func(x *index) {
		doubtful = x.restored.names != nil || len(x.named.guard.held) > 0
	})
	return doubtful
}

// Remembers: what leaves a type is remembered for a while, so that there is something to do
// when that has passed.
func (o OfType) Remembers() (remembers bool) {
	o.hub.types.look(o.url, func(x *index) { remembers = x.leaving.keep > 0 })
	return remembers
}

// Shows reports whether the stream that carries a type's names has shown something that
// nobody had asked for.
func (o OfType) Shows() (shows bool) {
	o.hub.types.look(o.url, func(x *index) { shows = x.shown.unasked })
	return shows
}

// Overdue are those of some names, of which a stream was silent for too long, that lead to something
// which it has not announced: that may be swept now, or later, while an error that came for the name
// on the stream is its answer. One that says that there is nothing by that name is none, nor is one
// that came on an earlier stream.
func (o OfType) Overdue(names []string, stream uint64) (now, later []string) {
	o.hub.types.look(o.url, func(x *index) {
		for _, name := range names {
			if len(x.named.UnconfirmedAnswers(name)) == 0 {
				continue
			}
			id, _ := x.named.Find(name)
			if err := x.named.Answer(id).Error; err != nil && err.GetCode() != cache.NotFound && x.named.silence.refused[name] == stream {
				later = append(later, name)
			} else {
				now = append(now, name)
			}
		}
	})
	return now, later
}

// Silent are those of the names of a type that somebody wants and of which upstream has
// said nothing on their own lane. shown are the ones of which it has, on the stream that
// carries them, shown a copy that is not here: a server that remembers believes them
// delivered (UP-19).
func (o OfType) Silent(names []string, stream uint64) (silent, shown []string) {
	o.hub.types.look(o.url, func(x *index) {
		for _, name := range names {
			if id, ok := x.named.silence.of(name, stream); !ok || !x.interest.wants(id) {
				continue
			}
			if x.shown.has(name, stream) {
				shown = append(shown, name)
			} else {
				silent = append(silent, name)
			}
		}
	})
	return silent, shown
}

// Lacking are those of the names of a type that upstream does not have, or has not answered: an error is
// an answer.
func (o OfType) Lacking(names []string, stream uint64) (lacking []string) {
	o.hub.types.look(o.url, func(x *index) {
		for _, name := range names {
			_, silent := x.named.silence.of(name, stream)
			if id, ok := x.named.Find(name); ok && (silent || x.named.Answer(id).State == cache.Absent) {
				lacking = append(lacking, name)
			}
		}
	})
	return lacking
}

// Absentees are the names of a type that somebody wants, and that upstream does not have
// (UP-19).
func (o OfType) Absentees() (names []string) {
	o.hub.types.look(o.url, func(x *index) {
		for id := range x.interest.named() {
			if x.named.Answer(id).State == cache.Absent {
				names = append(names, x.named.Name(id))
			}
		}
	})
	return names
}

// Early are those of some names of which the copy may be an old answer on the stream that
// carries them, which will not say it again (UP-19), and the rest.
func (o OfType) Early(names []string, stream uint64) (early, rest []string) {
	rest = names
	o.hub.types.look(o.url, func(x *index) {
		if x.shown.stream != stream || len(x.shown.early) == 0 {
			return
		}
		rest = nil
		for _, name := range names {
			if _, old := x.shown.early[name]; old {
				early = append(early, name)
			} else {
				rest = append(rest, name)
			}
		}
	})
	return early, rest
}

// SetSuspect says that upstream may be refusing a type. A suspect does not
// linger: it is given up with its last client (H-41).
func (o OfType) SetSuspect(suspect bool) {
	o.hub.types.change(o.url, func(x *index) {
		x.suspect = suspect
		if suspect {
			x.linger.expire(time.Time{}, true)
		}
	})
	o.hub.wanted.notify()
	o.hub.types.drop(o.url)
}

// Describe lists a type's names, by name, from just after a place and at most so
// many; more says that there are others after them. It is for people who look,
// not for the data path: each call sorts all names.
func (o OfType) Describe(after Place, limit int) (page []Description, more bool) {
	var at []Place
	o.hub.types.look(o.url, func(x *index) { at = places(x, after) })
	slices.SortFunc(at, Place.compare)
	if more = len(at) > limit; more {
		at = at[:limit]
	}
	o.hub.types.look(o.url, func(x *index) { page = describe(x, at) })
	return page, more
}

// Release lets go, for an operator, all removals of a type that are held back, and
// says how many.
func (o OfType) Release(now time.Time) (count int) {
	o.hub.types.change(o.url, func(x *index) {
		x.leaving.now = now
		count = x.letGo((*guard).release)
	})
	return count
}
