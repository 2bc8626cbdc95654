package session

import (
	"slices"

	"github.com/xds-relay/xds-relay/fanout"
)

// Delta responses about the wildcard's set: all of it once, then its changes.

// collectMembers lists the whole set once it is complete (DOWN-DELTA-13, row j), and then its
// changes.
func (d *deltaState) collectMembers(v fanout.View, push bool, p *plan) {
	if !wildcard(v) {
		d.wildcardAsked, d.opening = false, false
	}
	if !whole(v) {
		d.members = false // it is marked again when it is synced
		return
	}
	changes := d.waitsForCDS && (gainsMembers(d, v) || d.gainsTouched(v))
	later := changes && d.sentTo > 0
	asked, marked := d.wildcardAsked && !later, d.wildcardAsked || d.members
	if pushed := push && marked; !asked && !pushed {
		return
	}
	if again := asked && d.removedTo != unseen; again || d.oversizes(v) {
		d.expand(v)
	}
	if asked {
		d.wildcardAsked, d.opening = false, false
		p.must, p.answer = true, true
	}
	if d.exact != nil {
		if asked && d.exact.count == 0 {
			d.exact.room(v.Set().Len() + len(v.Names()))
		}
		d.reconcileMembers(v, asked, p)
		return
	}
	d.heldForCDS = d.heldForCDS || changes && !asked
	d.listMembers(v, p)
	if p.removedMembers = len(p.removed) > 0; d.heldForCDS {
		return
	}
	d.members, d.sentTo = false, p.position
	if !p.removedMembers {
		d.removedTo = p.position
	}
}

// oversizes reports whether a change of the set may be too large for the client, so that it may have to be left out.
func (d *deltaState) oversizes(v fanout.View) bool {
	if d.exact != nil {
		return false
	}
	news, ok := v.Set().News(d.sentTo)
	return ok && news.Largest > d.space-maxTTL
}

// listMembers lists for a plain client the changes of the set, unless they must wait (ORDER-3), and its removals,
// with those that had to wait.
func (d *deltaState) listMembers(v fanout.View, p *plan) {
	first := d.removedTo == unseen
	if news, ok := v.Set().News(d.sentTo); ok && d.inStep() && !d.heldForCDS {
		if p.news, p.resources = news, news.Resources; !first {
			p.removed = news.Removed
		}
		return
	}
	for c := range v.Set().Since(min(d.sentTo, d.removedTo)) {
		switch {
		case c.Resource == nil && !first && c.Seq > d.removedTo:
			p.removed = append(p.removed, c.Name)
		case c.Resource != nil && !d.heldForCDS && c.Seq > d.sentTo:
			p.resources = append(p.resources, c.Resource)
		}
	}
	slices.Reverse(p.resources) // in the order in which they changed
	slices.Reverse(p.removed)
}
