package session

import (
	"slices"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Delta responses about the wildcard's set: all of it once, then its changes.

// collectWildcard: the whole set once it is complete (DOWN-DELTA-13, row j), then
// its changes.
func (d *deltaState) collectWildcard(v fanout.View, push bool, p *part) {
	subscribed, synced := v.Wildcard()
	switch {
	case !subscribed:
		d.wildcardAsked, d.opening, d.members = false, false, false
		return
	case !synced:
		d.members = false // it is marked again when it is
		return
	case d.wildcardAsked:
		d.listMembers(v, true, p)
		d.wildcardAsked, d.opening = false, false
		p.must, p.answer = true, true
	case push && d.members:
		d.postponed = d.postpones && gainsMembers(d, v)
		if d.listMembers(v, false, p); d.postponed {
			p.removedMembers = len(p.removed) > 0
			return
		}
	default:
		return
	}
	p.removedMembers = len(p.removed) > 0
	d.members = false
	d.skipped(v, d.told)
	d.told = p.position
	if !p.removedMembers {
		d.untold = p.position
	}
}

// listMembers lists the whole set, if it was asked for, or what has changed in it, unless that has
// to wait (ORDER-3); and removals of what was told before, also those that had to wait.
func (d *deltaState) listMembers(v fanout.View, all bool, p *part) {
	after, from := d.told, min(d.told, d.untold)
	if all {
		after, from = 0, 0
	}
	if !d.postponed && d.plain() && (!all || d.untold == unseen) && d.share(v, after, p) {
		if !all {
			p.removed = p.news.Removed
		}
		return
	}
	for c := range v.Members(from) {
		switch {
		case c.Resource == nil && c.Seq > d.untold && !d.toldGone(c):
			p.removed = append(p.removed, c.Name)
		case c.Resource == nil, d.postponed, c.Seq <= after, all && v.WarmSet() && d.brings(c.Name):
		case (!all || d.brings(c.Name)) && d.holds(v, c.Resource):
			d.spare(c.Resource, p)
		case d.leavesOut(v, c.Resource, p):
		default:
			p.resources = append(p.resources, c.Resource)
		}
	}
	slices.Reverse(p.resources) // in the order in which they changed
	slices.Reverse(p.removed)
}

// toldGone: the client has been told ahead that a member is gone.
func (d *deltaState) toldGone(c cache.Change) bool {
	a, ok := d.ahead[c.Name]
	return ok && a.version == "" && c.Seq <= a.at
}

// share lists what every client without names, versions or peculiarities of its own is
// told after a position. false: this one is not like that, or may have to do without some of it.
func (d *deltaState) share(v fanout.View, after cache.Seq, p *part) bool {
	news, ok := v.News(after)
	if !ok || news.Largest > d.space-maxTTL {
		return false
	}
	p.news, p.resources = news, news.Resources
	return true
}

// collectLeft: a name given up under the wildcard is told as what it is to the
// wildcard, once that is certain (WILD-8, row l).
func (d *deltaState) collectLeft(v fanout.View, push bool, p *part) {
	subscribed, synced := v.Wildcard()
	if d.left.len() == 0 || !subscribed {
		d.left.take()
		d.leftWaits, d.withholds.left = false, false
		return
	}
	if !synced || d.leftWaits && !push && !p.must {
		d.leftWaits = true // it is no answer any more, but a change
		return
	}
	waited := d.leftWaits
	d.leftWaits, d.withholds.left = false, false
	removed := distinct(slices.Clone(p.removed)) // by upstream
	for _, name := range d.left.take() {
		_, again := v.Lookup(name)
		_, said := slices.BinarySearch(removed, name)
		r := v.Member(name)
		switch {
		case again: // it is told by its name
		case v.Leads(name): // or for an alias of it
			d.hasNone(v, name)
		case !said && d.mayBeMember(v, name):
			d.leftWaits, d.withholds.left = true, d.withholds.left || v.Doubted(name)
			d.left.add(name) // what was loaded from disk may lack it (RECON-19), as may a set with a fault (ERR-10)
		case r != nil && d.postpones && !p.must:
			d.left.add(name) // it may be a change
			d.postponed = true
		case said && d.mayBeMember(v, name): // it is told as what has gone
		default:
			p.answer = p.answer || !waited
			d.tellMember(v, name, r, p)
		}
	}
}

// mayBeMember: the wildcard's set lacks a resource, and may do so wrongly, since it is from disk or a
// fault hides some of it.
func (d *deltaState) mayBeMember(v fanout.View, name string) bool {
	return v.Member(name) == nil && (v.WarmSet() || v.Doubted(name))
}

// tellMember tells what a name is to the wildcard: a member, or with nil gone.
func (d *deltaState) tellMember(v fanout.View, name string, r *cache.Resource, p *part) {
	delete(d.released, name)
	if r != nil && d.leavesOut(v, r, p) {
		return
	}
	p.mixed = true
	if r != nil {
		p.resources = append(p.resources, r)
	} else {
		p.gone = append(p.gone, name)
	}
	d.exact.forget(name)
	d.sentAhead(v, name, r)
}
