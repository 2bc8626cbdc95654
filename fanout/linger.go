package fanout

import (
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// What lingers: wanted by nobody, still subscribed upstream (UP-7). Its number is bounded.
// While upstream is not alive the bound is for what leads to nothing, since the rest cannot
// be had again (NODE-10).

// lingerers are what lingers of one type, the longest unwanted first. The time is when it
// is given up. Names are pinned as long as they linger.
type lingerers struct {
	queue[time.Time]
	// idle are those that led to nothing when they were left, in the same order.
	idle queue[struct{}]
	// most is how many there may be: as configured, or what was loaded from disk.
	most int
}

// lingers adds something that nobody wants any more.
func (x *index) lingers(id cache.ID, until time.Time) {
	x.linger.add(id, until)
	if !x.leads(id) {
		x.linger.idle.add(id, struct{}{})
	}
	x.bound()
}

// lapses: something lingers no more, if it did.
func (x *index) lapses(id cache.ID) {
	if x.linger.remove(id) {
		x.linger.idle.remove(id)
		x.changed(id)
	}
}

// fades: what a name leads to has changed. If it lingers, and leads to nothing at the end of the
// change, it does not linger any more.
func (x *index) fades(id cache.ID) {
	if x.linger.has(id) {
		x.fading = append(x.fading, id)
	}
}

// faded gives up what lingers and leads to nothing any more (UP-7), unless it is from disk and nobody
// has come back for it.
func (x *index) faded() {
	for _, id := range x.fading {
		if _, awaited := x.named.restored.awaited[x.named.Name(id)]; !awaited && x.absent(id) {
			x.lapses(id)
		}
	}
	x.fading = x.fading[:0]
}

// bound gives up what is too much.
func (x *index) bound() {
	if !x.hub.spares.Load() {
		for x.linger.len > x.linger.most {
			id, _, _ := x.linger.oldest()
			x.lapses(id)
		}
		return
	}
	for x.linger.idle.len > x.linger.most {
		id, _, _ := x.linger.idle.oldest()
		if x.linger.idle.remove(id); !x.leads(id) {
			x.lapses(id)
		}
	}
}

// leads: something that lingers leads to a resource, or is a set.
func (x *index) leads(id cache.ID) bool {
	if id == wildcardID {
		return x.holds(id)
	}
	return x.named.Led(id) == cache.Present
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
		bare := x.named.Len()+x.wildcard.Len() == 0 && !x.wildcard.synced
		x.mu.Unlock()
		if !bare {
			return false
		}
	}
	return true
}
