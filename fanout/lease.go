package fanout

import (
	"iter"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// TTLs (protocol.md §11). Only upstream renews one (TTL-3); that a stream to it is
// open does not, which is why resources expire whether or not there is one.

// Expiry is when the next resource of the group expires, the next removal that is held
// back is due (H-22), or the next one that has left is forgotten (ORDER-2); zero: none.
func (h *Hub) Expiry() (next time.Time) {
	for x := range h.types.locked() {
		for _, at := range []time.Time{x.named.Expiry(), x.wildcard.Expiry(), x.named.guard.deadline(), x.wildcard.guard.deadline(), x.leaving.deadline()} {
			next = earlier(next, at)
		}
	}
	return next
}

// Lapse counts, of one type, what ended because its time was up.
type Lapse struct {
	Expired int // resources whose TTL upstream has not renewed (TTL-2)
	LetGo   int // removals that were held back for long enough (H-22)
}

// Lapse makes Absent what upstream has not renewed in time, or has taken away long
// enough ago, and wakes whom it concerns.
func (h *Hub) Lapse(now time.Time) (lapses map[cache.TypeURL]Lapse) {
	for _, x := range h.types.all() {
		wakeAll(x.locked(func() {
			x.leaving.now = now
			x.leaving.forget()
			named, members := x.named.Expired(now), x.wildcard.Expired(now)
			for _, name := range named {
				x.named.remove(name, cache.TTLExpired)
			}
			x.wildcard.expire(members)
			l := Lapse{Expired: len(named) + len(members)}
			l.LetGo = x.letGo(func(g *guard) departures { return g.expire(now) })
			if l != (Lapse{}) {
				if lapses == nil {
					lapses = make(map[cache.TypeURL]Lapse)
				}
				lapses[x.url] = l
			}
		}))
	}
	return lapses
}

// Leased reports whether any resource of the type has, or has had, a TTL.
func (v View) Leased() bool { return v.x.named.Leased() || v.x.wildcard.Leased() }

// Ends is when a resource of the View expires, zero: never; and the positions of the receipt that
// last gave it a TTL or took it away, and of the one that last renewed it.
func (v View) Ends(r *cache.Resource) (ends time.Time, turned, renewed cache.Seq) {
	if !v.Leased() {
		return time.Time{}, 0, 0
	}
	holds := func(t *cache.Table) (cache.ID, bool) {
		id, ok := t.Find(r.Name)
		return id, ok && t.State(id) == cache.Present && t.Own(id).Version == r.Version
	}
	if len(v.s.ids) > 0 && v.named(r.Name, nil) {
		if id, ok := holds(&v.x.named.Table); ok {
			return v.x.named.Ends(id)
		}
	}
	if id, ok := holds(&v.x.wildcard.Table); ok {
		return v.x.wildcard.Ends(id)
	}
	return time.Time{}, 0, 0
}

// Renewed yields the members of the wildcard set whose TTL upstream has renewed
// after a position without a change of content, latest first.
func (v View) Renewed(after cache.Seq) iter.Seq[cache.Change] {
	return v.unnamed(v.x.wildcard.Renewed(after))
}
