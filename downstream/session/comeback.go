package session

import (
	"slices"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// The versions that a Delta client came with are judged when it is certain what exists: an equal
// version means that the resource is not sent, another version is replaced, and a resource that
// is gone, or that no interest covers, is removed (DOWN-DELTA-8, -10, -11, RECON-19).
//
// Until then they are what the client holds, wherever the positions are. So the code that judges
// a resource must record what the client holds from then on, in the place where it is looked up:
// nothing for a member that is in the state that the positions have passed, an entry in ahead for
// a member that they have not passed, fanout.Told for a resource whose name is subscribed, and a
// note with the version for everything else.

// spare notes that a resource is not sent because the client came with it. at is its entry in
// exact, or nil.
func (d *deltaState) spare(at *entry, r *cache.Resource, p *part) {
	if at.brings() && (d.ttl || len(r.Aliases) > 0) {
		at.spared = true
		p.spared = append(p.spared, r)
	}
	d.aliased = d.aliased || len(r.Aliases) > 0
	d.exact.sent(at, r.Version, 0)
}

// recall applies a later request to what the client came with: a name that it asks for gets an
// answer now (DOWN-DELTA-7), and a name that it gives up it has dropped (DOWN-DELTA-16), unless
// another name leads there (NAME-5). What a name leads to goes with the name from now on. Nothing
// follows from giving up a member that was never named (row m).
func (d *deltaState) recall(subscribe, unsubscribe []string) {
	d.sub.Read(func(v fanout.View) {
		for _, name := range subscribe {
			id, still := v.Lookup(name)
			if !still {
				continue // the request gives it up as well
			}
			d.recallName(v, name)
			a := v.Answer(id)
			for _, r := range a.Resources() {
				d.recallName(v, r.Name)
			}
			d.release(d.leads(v, id, &a)...)
		}
		for _, name := range unsubscribe {
			if !wildcard(v) && !v.Leads(name) {
				d.judge(name)
			}
		}
	})
}

// recallName counts what the client came with of a resource as if it had been sent on this
// stream.
func (d *deltaState) recallName(v fanout.View, name string) {
	if at := d.exact.find(name); at.brings() {
		d.exact.recall(at)
		d.aliased = true // the client may have come with it because of an alias
	}
}

// collectBrought judges what the names and members did not judge: resources that a snapshot from
// disk would have replaced, resources that were in doubt, and those that nothing covers. What it
// lists is no answer, so it waits for an ACK as changes do.
func (d *deltaState) collectBrought(v fanout.View, push bool, p *part) {
	if !d.judging() {
		d.withholdsBrought = false
		return
	}
	// What exists is known from disk only (RECON-19), or the wildcard's set was not sent yet.
	restored := wildcard(v) && d.wildcardAsked || restored(v)
	if d.looked && !d.doubtOver && restored == d.lookedRestored {
		return // nothing has changed since they were looked at last
	}
	d.noteSent(v, p) // what is sent now is judged by that
	d.judge(p.gone...)
	if !d.judging() {
		d.withholdsBrought = false
		d.exact.judged()
		return
	}
	going := make(map[string]bool, len(p.removed))
	for _, name := range p.removed {
		going[name] = true // it is judged when the removal is sent
	}
	var left remaining
	unresolved := d.unresolved(v)
	for brought := range d.exact.all(true) {
		switch name := brought.name; {
		case going[name]:
			left.waits = true
		case restored && !d.confirmed(v, name):
			left.restored = true
		default:
			d.judgeBrought(v, name, unresolved, push, p, &left)
		}
	}
	if unresolved {
		return
	}
	d.looked, d.lookedRestored = left != (remaining{}) && !left.waits, restored
	d.withholdsBrought = left.doubt
	d.exact.judged()
}

// remaining says why some of the client's versions are not judged yet: they wait for their turn
// or for other names, they are in doubt, or what exists of them is known from disk only.
type remaining struct{ waits, doubt, restored bool }

// judgeBrought judges one resource that the client came with.
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

// confirmed reports whether a name that the client asks for leads to a resource, or no name does and
// the wildcard's set has it, and that is not known from disk only.
func (d *deltaState) confirmed(v fanout.View, name string) bool {
	confirmed := func(name string) bool {
		id, asked := v.Lookup(name)
		return asked && !v.Restored(id)
	}
	switch r := v.Resource(name); {
	case r == nil:
		return confirmed(name)
	case v.Leads(name):
		return confirmed(name) || slices.ContainsFunc(r.Aliases, confirmed)
	case subscribes(v, name):
		return confirmed(name)
	}
	return !d.wildcardAsked && !v.Set().Restored()
}

// judgeCopy judges a resource that the client came with and that exists.
func (d *deltaState) judgeCopy(v fanout.View, r *cache.Resource, push bool, p *part) (judged bool) {
	switch {
	case d.holds(v, r):
		if !push && d.lostTTL(v, r) {
			return false
		}
		d.spare(d.exact.find(r.Name), r, p)
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
	d.hasNow(v, r, p)
	return true
}

// hasNow notes that the client has a resource that it came with as it is now.
func (d *deltaState) hasNow(v fanout.View, r *cache.Resource, p *part) {
	d.sentBy(v, r)
	d.leadThere(v, r)
	if id, subscribed := v.Lookup(r.Name); subscribed {
		v.Tell(id, fanout.ToldCopy(p.position))
	}
}

// leadThere notes which of the client's names lead to a resource as aliases. What they led to
// before is released, although the names themselves may be looked at later.
func (d *deltaState) leadThere(v fanout.View, r *cache.Resource) {
	for _, alias := range r.Aliases {
		if id, ok := v.Lookup(alias); ok {
			a := v.Answer(id)
			d.release(d.leads(v, id, &a)...)
		}
	}
}

// judgeAbsence judges a resource that the client came with and that does not exist, or that no
// name and no member of the wildcard's set leads to.
func (d *deltaState) judgeAbsence(v fanout.View, name string, push bool, p *part) (judged bool) {
	id, subscribed := v.Lookup(name)
	switch {
	case !subscribed && d.mayCover(v, name): // it stays (NAME-11)
	case !subscribed:
		put(&d.released, name, released{unknown: true, brought: true})
	case v.Answer(id).State == cache.Absent: // it was in doubt before
		if push {
			p.removed, p.removedIDs = append(p.removed, name), append(p.removedIDs, id)
		}
		return false // until the removal is sent
	case v.Answer(id).State == cache.Present: // the name leads elsewhere
		d.release(name)
	default: // the answer is an error
		v.Tell(id, fanout.Brought)
	}
	d.exact.recall(d.exact.find(name))
	return true
}

// resolved reports whether upstream has answered everything that the client asks for.
func (d *deltaState) resolved(v fanout.View) bool {
	set := whole(v) || !wildcard(v)
	return set && !restored(v) && !d.unresolved(v)
}

// unresolved reports whether some name that is not in doubt has no answer.
func (d *deltaState) unresolved(v fanout.View) bool {
	return d.anyOf(v, func(id cache.ID) bool {
		return v.Unanswered(id) && v.Verdict(id, d.brings(v.Name(id))).Awaited()
	})
}
