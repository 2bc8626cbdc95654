package session

import (
	"slices"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Delta responses about the wildcard's set: all of it once, then its changes.

// collectWildcard lists the whole set once it is complete (DOWN-DELTA-13, row j), and then its
// changes.
func (d *deltaState) collectWildcard(v fanout.View, push bool, p *part) {
	if !wildcard(v) {
		d.wildcardAsked, d.opening = false, false
	}
	if !whole(v) {
		d.members = false // it is marked again when it is synced
		return
	}
	changes := d.postpones && d.sentTo > 0 && gainsMembers(d, v)
	switch {
	case d.wildcardAsked && !changes: // as when a name is asked for again
		d.listMembers(v, true, p)
		d.wildcardAsked, d.opening = false, false
		p.must, p.answer = true, true
	case push && (d.members || d.wildcardAsked):
		d.postponed = d.postpones && gainsMembers(d, v)
		d.listMembers(v, false, p)
	default:
		return
	}
	if p.removedMembers = len(p.removed) > 0; d.postponed {
		return
	}
	d.members = false
	d.skipped(v, min(d.sentTo, d.removedTo), d.changed.items)
	d.sentTo = p.position
	if !p.removedMembers {
		d.removedTo = p.position
	}
}

// listMembers lists the whole set, if it was asked for, or its changes, unless they must wait
// (ORDER-3); and the removals of members that were sent before, with those that had to wait.
func (d *deltaState) listMembers(v fanout.View, all bool, p *part) {
	after, from := d.sentTo, min(d.sentTo, d.removedTo)
	if all {
		after, from = 0, 0
	}
	nothingToRemove := !all || d.removedTo == unseen
	if nothingToRemove && d.plain() && d.share(v, after, p) {
		if !all {
			p.removed = p.news.Removed
		}
		return
	}
	for c := range v.Set().Since(from) {
		told := d.ahead[c.Name]
		switch held := told.version != "" || c.Seq > told.at; {
		case c.Resource == nil:
			if held && c.Seq > d.removedTo {
				p.removed = append(p.removed, c.Name)
			}
		case d.postponed, c.Seq <= after:
		case all && d.keepsBrought(v, c.Name):
		case (!all || d.brings(c.Name)) && d.keeps(v, c.Resource, told.at):
			d.spare(d.exact.find(c.Name), c.Resource, p)
		case d.leavesOut(v, c.Resource, p):
		default:
			p.resources = append(p.resources, c.Resource)
		}
	}
	slices.Reverse(p.resources) // in the order in which they changed
	slices.Reverse(p.removed)
}

// keepsBrought reports whether a member is known from disk only, and the client came with a version of it (RECON-19).
func (d *deltaState) keepsBrought(v fanout.View, name string) bool {
	return v.Set().Restored() && d.brings(name)
}

// share lists what every client without names, versions or exceptions of its own is sent after a
// position. It returns false if this client may have to be sent less.
func (d *deltaState) share(v fanout.View, after cache.Seq, p *part) bool {
	if d.postponed {
		return false
	}
	news, ok := v.Set().News(after)
	if !ok || news.Largest > d.space-maxTTL {
		return false
	}
	p.news, p.resources = news, news.Resources
	return true
}
