package fanout

import (
	"sync"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// agenda is what the upstream side has to know of all types, so that it need not look at those to
// which nothing happens: on which lanes it has become wanted or unwanted, and when the first type has
// something to do. Each type notes its part at the end of a change (note).
type agenda struct {
	mu     sync.Mutex
	flips  map[Lane]bool // lanes that have become wanted, or unwanted, since the last Flips
	expiry cache.Deadlines[*index]
	linger cache.Deadlines[*index]
}

// noted is what a type has noted in the agenda.
type noted struct {
	wildcard, named bool // the lane is wanted
	expiry, linger  time.Time
}

// notes returns what the agenda should have of the type.
func (x *index) notes() noted {
	lingering := x.linger.len
	if x.linger.has(wildcardID) {
		lingering--
	}
	n := noted{wildcard: x.desired(wildcardID), named: x.interest.names+lingering > 0}
	for _, at := range []time.Time{x.named.Expiry(), x.wildcard.Expiry(), x.named.guard.deadline(), x.wildcard.guard.deadline(), x.leaving.deadline()} {
		n.expiry = earlier(n.expiry, at)
	}
	if _, oldest, ok := x.linger.oldest(); ok {
		n.linger = oldest.until
	}
	return n
}

// note ends a change: it brings the agenda up to date, under the lock of the type.
func (x *index) note() {
	if n := x.notes(); n != x.noted && !x.dropped {
		x.hub.agenda.set(x, x.noted, n)
		x.noted = n
	}
}

func (a *agenda) set(x *index, was, n noted) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.flip(Lane{x.url, true}, was.wildcard, n.wildcard)
	a.flip(Lane{x.url, false}, was.named, n.named)
	a.expiry.Set(x, n.expiry)
	a.linger.Set(x, n.linger)
}

// flip notes that a lane has become wanted or unwanted. Nothing has happened if it does so twice.
func (a *agenda) flip(lane Lane, was, is bool) {
	if was == is {
		return
	}
	if _, twice := a.flips[lane]; twice {
		delete(a.flips, lane)
	} else {
		a.flips[lane] = is
	}
}

// Flips returns the lanes that have become wanted, or unwanted, since the last call.
func (h *Hub) Flips() (flips map[Lane]bool) {
	h.agenda.mu.Lock()
	defer h.agenda.mu.Unlock()
	if len(h.agenda.flips) > 0 {
		flips, h.agenda.flips = h.agenda.flips, make(map[Lane]bool)
	}
	return flips
}

// Expiry returns when the next resource of the group expires, the next held-back removal is due
// (H-22), or the next leaving resource is forgotten (ORDER-2); zero if there is none.
func (h *Hub) Expiry() (next time.Time) {
	h.agenda.mu.Lock()
	defer h.agenda.mu.Unlock()
	_, next = h.agenda.expiry.First()
	return next
}

// lingers returns the type of which something has lingered for longest, and until when it may.
func (a *agenda) lingers() (x *index, until time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.linger.First()
}

// lapsing returns the types of which something ends up to now.
func (a *agenda) lapsing(now time.Time) []*index {
	a.mu.Lock()
	defer a.mu.Unlock()
	due := a.expiry.Due(now)
	for _, x := range due {
		a.expiry.Set(x, now) // until it notes another time
	}
	return due
}
