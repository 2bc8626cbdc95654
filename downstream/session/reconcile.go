package session

import (
	"maps"
	"slices"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// What an exact client is sent of resources whose own names it does not subscribe to: members of the
// wildcard's set, and what an alias, a given-up name or nothing leads to. Names are answered by
// delta.go and sotw.go. One resource is wanted of each name (View.Resource). It is sent if the client
// does not hold it in that version; what it holds and nobody wants is removed, once that is certain.
// Why the client holds something does not matter.

// touched is what of an exact client has to be looked at.
type touched struct {
	names pile[string]
	// resend has what is said again whatever the client holds: what it has given up by name under the wildcard
	// (WILD-8), and members that clusters which it was sent refer to (ORDER-4). left has what of the former was not
	// looked at yet: that is an answer, which waits for no ACK, and what cannot be decided then is a change.
	resend  nameSet
	left    pile[string]
	all     bool // everything that it holds
	members bool // every member of the wildcard's set
	// open says that something that it holds could not be reconciled when it was looked at last: it is
	// uncertain whether it exists. withheld says that this is because of a fault (ERR-10).
	open, withheld bool
	at             situation // of that look
	// resolved: all names have answers. known: that was looked at for the response in the making.
	known, resolved bool
}

// situation is what the certainty of absence depends on, beside the names themselves: whether the wildcard's set is whole,
// whether it is from disk, and whether all names have answers.
type situation struct{ synced, restored, resolved bool }

func (t *touched) any() bool { return t.all || t.members || t.names.len()+len(t.resend) > 0 }

// surveys decides whether everything that an exact client holds is looked at now, and which of its names are.
func (x *exchange) surveys(v fanout.View, push bool) {
	if x.exact == nil {
		x.touched = touched{}
		return
	}
	t := &x.touched
	t.known = false
	if t.open {
		now := situation{whole(v), v.Set().Restored(), x.resolved(v)}
		t.all = t.all || x.doubtOver || now != t.at
		t.at = now
	}
	if !t.all || !push {
		return
	}
	t.open, t.withheld = false, false
	for e := range x.exact.all() {
		if id, own := v.Lookup(e.name); own && e.claimed {
			x.changed.add(id)
		}
	}
}

// resolved reports whether each name has an answer that is not only from disk, or is in doubt.
func (x *exchange) resolved(v fanout.View) bool {
	if t := &x.touched; !t.known {
		awaited := func(id cache.ID) bool { return v.Unanswered(id) && v.Resolution(id, x.claims(v.Name(id))).Awaited() }
		t.known, t.resolved = true, !x.anyOf(v, func(id cache.ID) bool { return awaited(id) || v.Restored(id) })
	}
	return x.touched.resolved
}

// reconcileMembers looks at the members of the wildcard's set that have changed since they were looked at
// last, or at all of them if the wildcard was asked for (DOWN-DELTA-13, row j).
func (x *exchange) reconcileMembers(v fanout.View, all bool, p *plan) {
	after := x.sentTo
	if after < v.Set().Forgotten() || all {
		x.touched.all = x.exact.count > 0 // what it holds may have gone long ago (H-42)
	}
	if all {
		after = 0
	}
	var gone []string
	for c := range v.Set().Since(after) {
		if c.Resource == nil {
			gone = append(gone, c.Name)
			continue
		}
		e := x.exact.lookUp(c.Resource.Hash, c.Name)
		x.reconcileWith(v, c.Name, c.Resource, e, all, p)
		if x.touched.all && e != nil {
			x.exact.looked(c.Resource)
		}
	}
	slices.Reverse(p.resources) // in the order in which they changed
	for _, name := range slices.Backward(gone) {
		x.reconcile(v, name, all, p)
	}
	x.members, x.sentTo = false, p.position
}

// reconcileTouched looks at what is touched beside these. Of what was given up, that to which an alias leads is no answer.
func (x *exchange) reconcileTouched(v fanout.View, push bool, p *plan) {
	if x.exact == nil || !x.touched.any() {
		return
	}
	waits := func(name string) bool { return v.Leads(name) || !x.touched.resend.has(name) }
	names := slices.DeleteFunc(x.touched.left.take(), waits)
	p.answer = p.answer || !push && len(names) > 0
	if push {
		names = slices.AppendSeq(x.touched.names.take(), maps.Keys(x.touched.resend))
		if x.touched.all {
			names = append(names, x.exact.unlooked()...)
		}
		if x.touched.members && whole(v) {
			for c := range v.Set().Since(0) {
				names = append(names, c.Name)
			}
		}
		x.touched.all, x.touched.members = false, false
	}
	for _, name := range distinct(names) {
		if !answersFor(v, name) {
			x.reconcile(v, name, false, p)
		}
	}
}

// answersFor reports whether a name that the client subscribes to says all about the resource that bears it. It does not if
// it leads elsewhere.
func answersFor(v fanout.View, name string) bool {
	id, subscribed := v.Lookup(name)
	if !subscribed {
		return false
	}
	a := v.Answer(id)
	own, _ := a.Own(name)
	return own != nil || a.State != cache.Present
}

// reconcile looks at one resource. all says that the wildcard was asked for: its members are sent whatever the client holds.
func (x *exchange) reconcile(v fanout.View, name string, all bool, p *plan) {
	r := v.Resource(name)
	if isMember := wildcard(v) && !v.Leads(name); isMember && !whole(v) {
		r = nil // nobody knows yet
	}
	x.reconcileWith(v, name, r, x.exact.find(name), all, p)
}

// reconcileWith does that given what is wanted, or nil, and what the client holds.
func (x *exchange) reconcileWith(v fanout.View, name string, r *cache.Resource, e *entry, all bool, p *plan) {
	again := e == nil || x.touched.resend.has(name)
	switch {
	case r == nil:
		x.reconcileAbsent(v, name, e, p)
	case e.claims() && e.version == r.Version:
		x.agrees(e, r, p)
	case e.claims() && x.unconfirmed(v, r): // RECON-19
		x.touched.open = true
	case !all && !again && x.keeps(v, r, e.at):
		x.exact.unclaim(e)
	case x.waitsForCDS && !all:
		x.heldForCDS = true
		x.touched.names.add(name)
	case x.leavesOut(v, r, p): // the error says the rest
		drop(&x.touched.resend, name)
	default:
		x.sends(v, r, p)
	}
}

// reconcileAbsent looks at a resource that nobody wants, or that does not exist. What cannot be reconciled yet stays.
func (x *exchange) reconcileAbsent(v fanout.View, name string, e *entry, p *plan) {
	switch {
	case e == nil && !x.touched.resend.has(name):
	case x.mayCover(v, name): // it stays (NAME-11)
		x.exact.unclaim(e)
		drop(&x.touched.resend, name)
	case !x.certain(v, name, e.claims()):
		x.touched.open = true
	case !x.delta: // no response says so (DOWN-SOTW-10)
		x.exact.remove(name)
		drop(&x.touched.resend, name)
	case x.laterThanNew(e, p):
		x.exact.unclaim(e)
		x.touched.names.add(name)
	default:
		x.exact.unclaim(e)
		p.removed = append(p.removed, name)
		p.removedNames = append(p.removedNames, name)
	}
}

// laterThanNew reports whether the removal of a Cluster goes after the Clusters that are sent now. A client that has
// just come back may not have asked yet for the types that refer to them, which may soon turn from this one to
// those (ORDER-2).
func (x *exchange) laterThanNew(e *entry, p *plan) bool {
	brought := e != nil && e.brought
	return brought && x.api == cache.Cluster && len(p.resources) > 0
}

// certain reports whether a resource that the client holds, and that none of its names is, is certainly gone, or
// covered by nothing (DOWN-DELTA-10, -11, RECON-19).
func (x *exchange) certain(v fanout.View, name string, claimed bool) bool {
	if c, known := v.Set().Change(name); wildcard(v) {
		if said := known && c.Resource == nil; said {
			return true
		}
		if !whole(v) || v.Set().Restored() {
			return false
		}
	}
	if v.Doubted(name) {
		x.touched.withheld = true
		return false
	}
	mayBeNamed := claimed || x.aliased // a name without an answer may lead to it
	return !mayBeNamed || v.Knows(name) || x.resolved(v)
}

// unconfirmed reports whether what there is of a resource is known from disk only.
func (x *exchange) unconfirmed(v fanout.View, r *cache.Resource) bool {
	if !v.Leads(r.Name) {
		return v.Set().Restored() && (x.sentTo == 0 || v.Changed(r) <= x.sentTo)
	}
	return slices.ContainsFunc(slices.Collect(r.Names()), func(name string) bool {
		id, asked := v.Lookup(name)
		return asked && v.Restored(id)
	})
}

// agrees records that the client came with a resource as it is. Its TTL may have been renewed meanwhile (TTL-5).
func (x *exchange) agrees(e *entry, r *cache.Resource, p *plan) {
	x.exact.agree(e, p.position)
	if x.ttl {
		p.spared = append(p.spared, r)
	}
}

// sends lists a resource, and records it as sent.
func (x *exchange) sends(v fanout.View, r *cache.Resource, p *plan) {
	p.resources = append(p.resources, r)
	if len(r.Aliases) > 0 && x.delta {
		x.expand(v)
		x.aliased = true
	}
	x.sent(r, p.position)
	drop(&x.came, r.Name)
	drop(&x.touched.resend, r.Name)
	for name := range r.Names() {
		if id, ok := v.Lookup(name); ok {
			v.Sent(id)
		}
	}
}

// mayCover reports whether a Delta client may hold a resource because of a glob. Control planes differ in
// what a glob covers, so without the wildcard it may be any resource. What the wildcard's set lacks is
// gone, unless the glob covers it in the narrowest sense. A wildcard that is refused (NODE-14) is like such a glob.
func (x *exchange) mayCover(v fanout.View, name string) bool {
	if x.spares {
		return true
	}
	return len(x.globs) > 0 && (!wildcard(v) || x.globs.has(cache.GlobOf(name)))
}
