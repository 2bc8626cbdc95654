package fanout

import (
	"slices"

	"github.com/xds-relay/xds-relay/cache"
)

// What a last resort sends fills gaps (UP-26). Like what is loaded from disk it is unconfirmed: it replaces nothing
// that a client has, and the first control plane that answers confirms, replaces or sweeps it.

// Fill takes out of an Update of a last resort what there is nothing of, and wakes the clients that wait for it. All
// the rest is ignored: removals, errors, sweeps.
func (h *Hub) Fill(lane Lane, u *cache.Update) {
	h.types.change(lane.Type, func(x *index) { x.lane(lane).kind.fill(u) })
}

// Lacks reports whether a client asks for something of which there is nothing: no copy, not even one from disk, and no
// answer that there is none.
func (h *Hub) Lacks() bool { return h.types.any((*index).lacks) }

func (x *index) lacks() bool {
	if x.interest.wants(wildcardID) && !x.wildcard.synced {
		return true
	}
	for id := range x.interest.named() {
		if x.resolution(id, x.answers.of(id), true) == Pending {
			return true
		}
	}
	return false
}

func (n *namedLane) fill(u *cache.Update) {
	fills := slices.DeleteFunc(slices.Clone(u.Set), func(r cache.Received) bool { return !n.lacks(r.Resource) })
	for _, r := range fills {
		n.x.markNamed(n.take(cache.Held{Resource: r.Resource}, u.At))
		n.Restore(r.Name, u.At)
	}
}

// lacks reports whether there is nothing of a resource, and a name that leads to it has no answer.
func (n *namedLane) lacks(r *cache.Resource) bool {
	if _, known := n.Find(r.Name); known {
		return n.pends(r.Name)
	}
	return goesBy(r, n.pends)
}

// pends reports whether upstream has not answered a name.
func (n *namedLane) pends(name string) bool {
	id, known := n.Find(name)
	return known && n.x.resolution(id, n.x.answers.of(id), true) == Pending
}

// fill takes in a set where there is none. A set that was never complete gets what it lacks.
func (w *wildcardLane) fill(u *cache.Update) {
	if !w.pinned || w.synced {
		return
	}
	for _, r := range u.Set {
		if !w.Has(r.Name) {
			w.take(cache.Held{Resource: r.Resource}, u.At)
			w.x.markFallback(r.Name)
		}
	}
	if u.Synced {
		w.synced, w.early, w.restored, w.asOf, w.changed = true, false, true, u.At, true
	}
	w.tell()
}
