package fanout

import (
	"math"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/xds-relay/xds-relay/cache"
)

// What lingers: wanted by nobody, still subscribed upstream (UP-7). Its number is bounded.
// While upstream is not alive the bound is for what leads to nothing, since the rest cannot
// be had again (NODE-10).

// lingerers are what lingers of one type, the longest unwanted first. The time is when it
// is given up.
type lingerers struct {
	*simplelru.LRU[lingering, time.Time]
	// idle are those that led to nothing when they were left, in the same order.
	idle *simplelru.LRU[lingering, struct{}]
	// most is how many there may be: as configured, or what was loaded from disk.
	most int
}

type lingering struct {
	wildcard bool
	name     string
}

// newLingerers has gone called for each that lingers no more.
func newLingerers(most int, gone func(lingering)) (l lingerers) {
	// The only error is a size below one.
	l.idle, _ = simplelru.NewLRU[lingering, struct{}](math.MaxInt, nil)
	l.LRU, _ = simplelru.NewLRU(math.MaxInt, func(k lingering, _ time.Time) {
		l.idle.Remove(k)
		gone(k)
	})
	l.most = most
	return l
}

// lingers adds something that nobody wants any more.
func (x *index) lingers(l lingering, until time.Time) {
	x.linger.Add(l, until)
	if !x.leads(l) {
		x.linger.idle.Add(l, struct{}{})
	}
	x.bound()
}

// bound gives up what is too much.
func (x *index) bound() {
	if !x.hub.spares.Load() {
		for x.linger.Len() > x.linger.most {
			x.linger.RemoveOldest()
		}
		return
	}
	for x.linger.idle.Len() > x.linger.most {
		if l, _, _ := x.linger.idle.RemoveOldest(); !x.leads(l) {
			x.linger.Remove(l)
		}
	}
}

// leads: something that lingers leads to a resource, or is a set.
func (x *index) leads(l lingering) bool {
	if l.wildcard {
		return x.holds(l)
	}
	id, ok := x.named.Find(l.name)
	return ok && x.named.Answer(id).State == cache.Present
}

// Spare has names that lead to something linger whatever their number, or not: while
// upstream is not alive they are all there is of the last known good state (NODE-10).
func (h *Hub) Spare(spares bool) {
	h.spares.Store(spares)
	for _, x := range h.all() {
		x.mu.Lock()
		x.bound()
		x.mu.Unlock()
	}
	h.wanted.notify()
}

// Bare reports whether nothing is here: no resource, and no set that is known to be empty.
func (h *Hub) Bare() bool {
	for _, x := range h.all() {
		x.mu.Lock()
		bare := x.named.Len()+x.wildcard.Len() == 0 && !x.synced
		x.mu.Unlock()
		if !bare {
			return false
		}
	}
	return true
}
