package session

import (
	"slices"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// What a Delta client came with is judged when it is certain what there is: an equal version
// spares it the resource, another one is replaced, and what is gone, or what no interest covers,
// is taken from it (DOWN-DELTA-8, -10, -11, RECON-19).

// spare notes that a resource is not sent since the client came with it.
func (d *deltaState) spare(r *cache.Resource, p *part) {
	if d.brings(r.Name) && (d.ttl || len(r.Aliases) > 0) {
		d.brought.spare(r.Name, true)
		p.spared = append(p.spared, r)
	}
	d.sent(r)
}

// collectBrought judges what was not judged with the names and members that were looked at:
// what a snapshot from disk would have replaced, what was in doubt, and what nothing covers.
// That is no answer, and waits for an ACK as changes do.
func (d *deltaState) collectBrought(v fanout.View, push bool, p *part) {
	if d.brought == nil || d.looked && !d.handed {
		return // nothing is known of these that was not when they were looked at last
	}
	if subscribed, _ := v.Wildcard(); subscribed && (d.wildcardAsked || v.WarmSet()) {
		return
	}
	if v.Warms() && slices.ContainsFunc(v.Names(), v.Warm) {
		return
	}
	for _, r := range p.resources { // what is told now is judged by that
		d.brought.judge(r.Name)
	}
	d.brought.judgeAll(p.gone)
	going := make(map[string]bool, len(p.removed))
	for _, name := range p.removed {
		going[name] = true // it is judged when it is told
	}
	doubt, waits := false, false
	unresolved := d.unresolved(v)
	for name := range d.brought.names() {
		r := v.Resource(name)
		id, subscribed := v.Lookup(name)
		switch {
		case going[name]:
			waits = true
		case r != nil && d.holds(v, r):
			d.spare(r, p)
			d.sentBy(v, r)
			d.takesOver(v, id, subscribed, p)
		case r != nil && v.Body(r) == nil:
			v.Ask(r)
			waits = true
		case r != nil && (!push || d.postpones):
			d.postponed = d.postponed || d.postpones
			waits = true
		case r != nil:
			p.resources, p.mixed = append(p.resources, r), true
			d.brought.judge(name)
			d.sentBy(v, r)
			d.takesOver(v, id, subscribed, p)
		case unresolved:
			waits = true
		case v.Doubted(name):
			doubt = true
		case subscribed && v.Answer(id).State == cache.Absent && !push:
			waits = true
		case subscribed && v.Answer(id).State == cache.Absent: // it was in doubt
			p.removed, p.removedIDs = append(p.removed, name), append(p.removedIDs, id)
			waits = true // until it is told
		case subscribed: // it leads elsewhere, or is refused
			version, _ := d.of(v, name)
			d.note(name, copied{version, true})
			d.brought.judge(name)
			if v.Answer(id).State == cache.Present {
				d.release(name)
			} else {
				v.Tell(id, fanout.Brought)
			}
		default:
			version, _ := d.of(v, name)
			d.note(name, copied{version, true}) // until it is told
			d.uncovered.add(name)
			d.brought.judge(name)
		}
	}
	if unresolved {
		return
	}
	d.looked = doubt && !waits
	if v.Withhold(doubt); !doubt && !waits && !d.postponed { // else what waits is compared with them
		d.brought = nil
	}
}

// takesOver notes that the client has what one of its names leads to, if that is one's own.
func (d *deltaState) takesOver(v fanout.View, id cache.ID, subscribed bool, p *part) {
	if subscribed && !v.Told(id).Copy() {
		v.Tell(id, fanout.ToldCopy(p.position))
	}
}

// collectUncovered: what the client came with and nothing covers is taken from it, after
// what may refer to it now (ORDER-2). A client that has just come back may not have asked
// yet for what refers to Clusters: those go when it has acknowledged the new ones.
func (d *deltaState) collectUncovered(v fanout.View, push bool, p *part) {
	if d.uncovered.len() == 0 || !d.resolved(v) || d.url == cache.Cluster && (len(p.resources) > 0 || !push && d.unjudged()) {
		return
	}
	doubt := false
	for _, name := range d.uncovered.take() {
		switch {
		case v.Doubted(name): // by now
			doubt = true
			d.uncovered.add(name)
		case !v.Covers(name):
			p.removedUncovered = append(p.removedUncovered, name)
		}
	}
	if doubt || d.brought == nil {
		v.Withhold(doubt)
	}
	slices.Sort(p.removedUncovered)
	p.removed = slices.Concat(p.removed, p.removedUncovered)
}

// resolved: upstream has spoken of all that the client asks for.
func (d *deltaState) resolved(v fanout.View) bool {
	if subscribed, synced := v.Wildcard(); subscribed && (!synced || v.WarmSet()) {
		return false
	}
	return !slices.ContainsFunc(v.Names(), func(id cache.ID) bool { return v.Warm(id) || d.waitsFor(v, id) })
}

// waitsFor: a name has no answer, and is not in doubt.
func (d *deltaState) waitsFor(v fanout.View, id cache.ID) bool {
	return v.Unanswered(id) && v.Verdict(id, d.brings(v.Name(id))) == fanout.Unknown
}

// unresolved: some name has no answer. Mostly it is the same one as when it was last asked.
func (d *deltaState) unresolved(v fanout.View) bool {
	if v.Has(d.unanswered) && d.waitsFor(v, d.unanswered) {
		return true
	}
	i := slices.IndexFunc(v.Names(), func(id cache.ID) bool { return d.waitsFor(v, id) })
	if i >= 0 {
		d.unanswered = v.Names()[i]
	}
	return i >= 0
}
