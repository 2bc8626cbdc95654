package fanout

import (
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// TTLs (protocol.md §11). Only upstream renews one (TTL-3). An open stream to upstream
// does not, so resources expire whether or not there is one.

// Lapse counts what ended in one type because its time was up.
type Lapse struct {
	Expired  int // resources whose TTL upstream has not renewed (TTL-2)
	LetGo    int // held-back removals that were carried out (H-22),
	Returned int // or forgotten, because the resources have to be announced anyhow
}

// Lapsing returns the types for which Lapse has something to do.
func (h *Hub) Lapsing(now time.Time) (types []cache.TypeURL) {
	for _, x := range h.agenda.lapsing(now) {
		types = append(types, x.url)
	}
	return types
}

// Lapse removes the resources that upstream has not renewed in time, carries out held-back removals
// whose time is up, and wakes the clients that this concerns.
func (h *Hub) Lapse(now time.Time) map[cache.TypeURL]Lapse {
	lapses := make(map[cache.TypeURL]Lapse)
	for _, x := range h.agenda.lapsing(now) {
		x.change(func(x *index) {
			x.leaving.now = now
			x.leaving.forget()
			named, members := x.named.Expired(now), x.wildcard.Expired(now)
			x.named.expire(named)
			x.wildcard.expire(members)
			l := Lapse{Expired: len(named) + len(members)}
			l.LetGo = x.letGo(func(l *lane) departures { return l.guard.expire(now, l.Announced) }) // and tells of members
			l.Returned = x.named.guard.takeReturned() + x.wildcard.guard.takeReturned()
			if l != (Lapse{}) {
				lapses[x.url] = l
			}
		})
	}
	return lapses
}

// expire removes resources whose TTL has ended, and makes Absent the names that led to them and that
// upstream has not answered: an answer may never come.
func (l *lane) expire(expired []string) {
	for _, name := range expired {
		r := l.Bearer(name)
		if r == nil {
			continue // it has gone with another
		}
		l.kind.remove(name, cache.TTLExpired)
		for led := range r.Names() {
			if id, ok := l.x.named.Find(led); ok && l.x.interest.wants(id) && l.x.answers.of(id).State == cache.Unknown {
				l.x.named.remove(led, cache.Timer)
			}
		}
	}
}

// AnyTTL reports whether any resource of the type has, or has had, a TTL, or was repeated.
func (v View) AnyTTL() bool { return v.x.named.Leased() || v.x.wildcard.Leased() }

// Ends returns when a resource of the View expires (zero: never), the position at which it last got
// or lost a TTL, and the position at which the TTL was last renewed.
func (v View) Ends(r *cache.Resource) (ends time.Time, turned, renewed cache.Seq) {
	if v.AnyTTL() {
		if t, id := v.find(r); t != nil {
			return t.Ends(id)
		}
	}
	return time.Time{}, 0, 0
}

// Repeated returns the position at which upstream last repeated a resource of the View that clients
// drop unless they are sent it again (TTL-13).
func (v View) Repeated(r *cache.Resource) cache.Seq {
	if t, id := v.find(r); r.GoesStale && t != nil {
		return t.Repeated(id)
	}
	return 0
}
