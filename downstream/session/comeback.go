package session

import (
	"slices"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// What a Delta client came with is judged when it is certain what there is: an equal version
// spares it the resource, another one is replaced, and what is gone, or what no interest covers,
// is taken from it (DOWN-DELTA-8, -10, -11, RECON-19).
//
// Until then it is what the client holds, whatever the positions have passed: they say nothing of
// it. So whoever judges it leaves word of what the client holds from then on, where that would be
// looked for: nothing of a member that the positions have passed and that is as it is there, what
// is told ahead of a member that they have not, what its name is told if it has one, and a note
// with the version of everything else.

// spare notes that a resource is not sent since the client came with it.
func (d *deltaState) spare(r *cache.Resource, p *part) {
	d.spareAt(d.exact.find(r.Name), r, p)
}

func (d *deltaState) spareAt(at *entry, r *cache.Resource, p *part) {
	if at.brings() && (d.ttl || len(r.Aliases) > 0) {
		at.spared = true
		p.spared = append(p.spared, r)
	}
	d.aliased = d.aliased || len(r.Aliases) > 0
	d.exact.sent(at, r.Version, 0)
}

// dropsMembers takes in that the wildcard is about to be given up: of what the client came with it
// drops all that no name has led it to, which is to be sent again to a name that leads there now.
func (d *deltaState) dropsMembers() {
	d.sub.Read(func(v fanout.View) {
		d.exact.voidAll(func(name string) bool {
			_, own := v.Lookup(name)
			return !own && (len(v.Names()) == 0 || !d.mayLead(v, name))
		})
	})
}

// collectBrought judges what was not judged with the names and members that were looked at:
// what a snapshot from disk would have replaced, what was in doubt, and what nothing covers.
// That is no answer, and waits for an ACK as changes do.
func (d *deltaState) collectBrought(v fanout.View, push bool, p *part) {
	if !d.judging {
		return
	}
	warm := d.fromDisk(v)
	if d.looked && !d.handed && warm == d.lookedWarm {
		return // nothing is known of these that was not when they were looked at last
	}
	for _, r := range p.resources { // what is told now is judged by that
		d.judge(r.Name)
	}
	d.judge(p.gone...)
	going := make(map[string]bool, len(p.removed))
	for _, name := range p.removed {
		going[name] = true // it is judged when it is told
	}
	var left remaining
	unresolved := d.unresolved(v)
	for brought := range d.exact.all(true) {
		switch name := brought.name; {
		case going[name]:
			left.waits = true
		case warm && !d.confirmed(v, name):
			left.warm = true
		default:
			d.judgeBrought(v, name, unresolved, push, p, &left)
		}
	}
	if unresolved {
		return
	}
	d.looked, d.lookedWarm = left != (remaining{}) && !left.waits, warm
	d.withholds.brought = left.doubt
	if left == (remaining{}) {
		d.judged()
	}
}

// remaining is why some of what the client came with is not judged yet: it waits for its turn or for
// other names, it is in doubt, or what there is of it is from disk.
type remaining struct{ waits, doubt, warm bool }

// judgeBrought judges what the client came with of one resource.
func (d *deltaState) judgeBrought(v fanout.View, name string, unresolved, push bool, p *part, left *remaining) {
	switch r := v.Resource(name); {
	case r != nil:
		left.waits = !d.judgeCopy(v, r, push, p) || left.waits
	case unresolved:
		left.waits = true
	case v.Doubted(name):
		left.doubt = true
	default:
		left.waits = !d.judgeAbsence(v, name, push, p) || left.waits
	}
}

// fromDisk: some of what the client asks for is known from disk only (RECON-19), or the
// wildcard's set was not told yet.
func (d *deltaState) fromDisk(v fanout.View) bool {
	subscribed, _ := v.Wildcard()
	return subscribed && d.wildcardAsked || warm(v)
}

// confirmed: a name that the client asks for leads to a resource, and is not known from disk only.
func (d *deltaState) confirmed(v fanout.View, name string) bool {
	confirmed := func(name string) bool {
		id, asked := v.Lookup(name)
		return asked && !v.Restored(id)
	}
	r := v.Resource(name)
	return confirmed(name) || r != nil && v.Leads(name) && slices.ContainsFunc(r.Aliases, confirmed)
}

// judgeCopy judges what the client came with of a resource that exists.
func (d *deltaState) judgeCopy(v fanout.View, r *cache.Resource, push bool, p *part) (judged bool) {
	switch {
	case d.holds(v, r):
		if !push && d.lostTTL(v, r) {
			return false
		}
		d.spare(r, p)
	case v.Bodies().Body(r) == nil:
		v.Bodies().Ask(r)
		return false
	case !push || d.postpones:
		d.postponed = d.postponed || d.postpones
		return false
	case d.leavesOut(v, r, p):
		d.leadThere(v, r)
		return true
	default:
		p.resources, p.mixed = append(p.resources, r), true
		d.judge(r.Name)
	}
	d.sentBy(v, r)
	d.leadThere(v, r)
	if id, subscribed := v.Lookup(r.Name); subscribed {
		v.Tell(id, fanout.ToldCopy(p.position))
	}
	return true
}

// leadThere notes which of the client's names lead to a resource as aliases: what they led to goes
// with them, though they are not looked at before that.
func (d *deltaState) leadThere(v fanout.View, r *cache.Resource) {
	for _, alias := range r.Aliases {
		if id, ok := v.Lookup(alias); ok {
			a := v.Answer(id)
			d.release(d.leads(v, id, &a)...)
		}
	}
}

// judgeAbsence judges what it came with of a resource that does not exist, or that no name
// and no member of the wildcard's set leads to.
func (d *deltaState) judgeAbsence(v fanout.View, name string, push bool, p *part) (judged bool) {
	id, subscribed := v.Lookup(name)
	if !subscribed {
		version, _ := d.of(v, name)
		d.exact.noteAt(d.exact.find(name), version, true) // until it is told
		put(&d.released, name, released{unknown: true, brought: true})
		d.judge(name)
		return true
	}
	state := v.Answer(id).State
	if state == cache.Absent { // it was in doubt
		if push {
			p.removed, p.removedIDs = append(p.removed, name), append(p.removedIDs, id)
		}
		return false // until it is told
	}
	version, _ := d.of(v, name)
	d.exact.noteAt(d.exact.find(name), version, true)
	d.judge(name)
	if state == cache.Present { // it leads elsewhere
		d.release(name)
	} else { // it is refused
		v.Tell(id, fanout.Brought)
	}
	return true
}

// resolved: upstream has spoken of all that the client asks for.
func (d *deltaState) resolved(v fanout.View) bool {
	subscribed, synced := v.Wildcard()
	return (synced || !subscribed) && !warm(v) && !d.unresolved(v)
}

// waitsFor: a name has no answer, and is not in doubt.
func (d *deltaState) waitsFor(v fanout.View, id cache.ID) bool {
	return v.Unanswered(id) && v.Verdict(id, d.brings(v.Name(id))) == fanout.Unknown
}

// unresolved: some name has no answer.
func (d *deltaState) unresolved(v fanout.View) bool {
	return d.anyOf(v, func(id cache.ID) bool { return d.waitsFor(v, id) })
}
