package session

import (
	"maps"
	"slices"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// A resource that a client has because of a name is removed when the name is given up or leads
// elsewhere, unless another name or the wildcard covers it (NAME-5, WILD-8, WILD-16).

// givesUp takes in that names are about to be given up, and returns the resources that the client
// has because of them, and may have because of others, too. The wildcard's positions have passed
// such members without sending them, so under the wildcard what the client has of them is
// recorded. asks says that the same request asks for the wildcard.
func (d *deltaState) givesUp(names []string, asks bool) (ledTo []string) {
	if len(names) == 0 {
		return nil
	}
	all := slices.Contains(names, fanout.Wildcard)
	d.sub.Read(func(v fanout.View) {
		had := wildcard(v)
		under := (had || asks) && !all
		if !under {
			d.drops(v, names)
		}
		if plain := !d.aliased && d.exact.noted == 0; plain && !had && !under {
			return
		}
		for _, name := range names {
			if id, ok := v.Lookup(name); ok {
				ledTo = append(ledTo, d.leaveName(v, id, under)...)
			} else if name == fanout.Wildcard {
				ledTo = append(ledTo, d.leaveMembers(v)...)
			} else if !under {
				d.givesUpBrought(v, name)
			}
		}
	})
	return ledTo
}

// drops takes in that names are about to be given up and that the wildcard, which they may include, does
// not cover what they led to. The client drops that, and what it came with for the wildcard, unless
// another name leads there, which the relay may not know: what it came with may list the names, and so
// may what is to be removed. It is sent again when a name leads there.
func (d *deltaState) drops(v fanout.View, names []string) {
	if len(d.released)+d.exact.noted == 0 && !d.judging() {
		return
	}
	left := make(nameSet)
	for _, name := range names {
		if subscribes(v, name) {
			left.add(name)
		}
	}
	members := wildcard(v) // DOWN-DELTA-17
	if len(left) == 0 && !members {
		return
	}
	stays := func(alias string) bool { return subscribes(v, alias) && !left.has(alias) }
	dropped := func(name string) bool {
		r := d.lists(v, name)
		if r == nil {
			return true
		}
		covered := members || slices.ContainsFunc(r.Aliases, left.has)
		return covered && !slices.ContainsFunc(r.Aliases, stays)
	}
	for _, name := range slices.AppendSeq(slices.Collect(maps.Keys(left)), maps.Keys(d.released)) {
		if at := d.exact.find(name); at.has() && !stays(name) && dropped(name) {
			at.version = ""
		}
	}
	d.exact.voidAll(func(name string) bool { return !subscribes(v, name) && dropped(name) })
}

// givesUpBrought takes in that the client gives up a name that it does not ask for and whose resource it came
// with. If its removal was due, it is no longer sent (DOWN-DELTA-16). The client still has what it was sent
// because of an alias, since it never asked for that by this name (NAME-5).
func (d *deltaState) givesUpBrought(v fanout.View, name string) {
	as, is := d.released[name]
	if brought := as.brought || d.brings(name); is && brought && !v.Leads(name) {
		d.paidReleased(name)
	}
}

// erase forgets the resources that names led to which were given up, unless other names lead
// there, too. For what the wildcard may cover, the client is sent the wildcard's state of it
// (WILD-8). gone has those of the names whose removal was due, whatever the client's copies list.
func (d *deltaState) erase(ledTo, gone []string) {
	if len(ledTo) == 0 {
		return
	}
	d.sub.Read(func(v fanout.View) {
		for _, name := range ledTo {
			_, went := slices.BinarySearch(gone, name)
			_, some := d.of(v, name)
			switch {
			case subscribes(v, name), v.Leads(name):
				d.release(name) // the name that leads there may not be looked at before it leads elsewhere
			case some && wildcard(v):
				d.leaves(name)
			case wildcard(v):
				if d.dropNone(v, name) {
					d.release(name) // the member may be smaller than what was too large
				}
			case some && len(v.Names()) > 0 && d.mayLead(v, name):
				put(&d.released, name, released{unknown: !went})
			default:
				d.exact.forget(name)
			}
		}
	})
}

// lists returns the resource in the version that the client holds, or nil if nobody knows which
// aliases that version lists.
func (d *deltaState) lists(v fanout.View, name string) *cache.Resource {
	version, _ := d.of(v, name)
	return v.Here(name, version)
}

// mayLead reports whether the client's version of a resource lists a name that the client asks
// for, or nobody knows what it lists.
func (d *deltaState) mayLead(v fanout.View, name string) bool {
	r := d.lists(v, name)
	return r == nil || slices.ContainsFunc(r.Aliases, func(alias string) bool { return subscribes(v, alias) })
}

// collectReleased judges the resources that the client's interest may no longer cover. It lists the member if
// the wildcard covers the resource, and the removal if nothing does. What cannot be judged yet stays. What
// was given up under the wildcard is an answer if it can be judged at once, and a change after that (WILD-8).
func (d *deltaState) collectReleased(v fanout.View, push bool, p *part) {
	d.withholdsReleased = d.withholdsReleased && len(d.released) > 0
	if len(d.released) > 0 && !d.postponed { // what waits may lead to a released resource
		judged := d.judgeReleased(v, push, p)
		p.answer = p.answer || !push && len(judged) > 0
		for _, name := range judged {
			member, _ := d.falls(v, name)
			d.fallsTo(v, name, member, p)
		}
	}
	for name, as := range d.released {
		as.now = false
		d.released[name] = as
	}
}

// judgeReleased returns those of them whose state is certain, and that need not wait for an ACK.
func (d *deltaState) judgeReleased(v fanout.View, push bool, p *part) (judged []string) {
	d.withholdsReleased = false
	// A client that has just come back may not have asked yet for the types that refer to its
	// Clusters. The removal of these Clusters goes after the ones that are sent now, since what
	// refers to the old ones may soon refer to the new ones (ORDER-2).
	waits := d.url == cache.Cluster && len(p.resources) > 0 || !d.resolved(v)
	for name, as := range d.released {
		member, certain := d.falls(v, name)
		asked := as.now || p.must
		answer := asked && as.givenUp && !v.Leads(name) // what leads there is looked at with changes
		open := as.unknown && waits || d.mayLeadHere(v, name, member, as)
		switch {
		case d.postpones && !p.must && d.fallsToChange(v, name):
			d.postponed = true
		case member == nil && v.Doubted(name): // becoming a member instead is no removal
			d.withholdsReleased = true
		case !push && !answer:
		case open, !certain:
			d.mayHaveEnded(v, name)
		default:
			judged = append(judged, name)
		}
	}
	return distinct(judged)
}

// mayLeadHere reports whether a name without an answer may lead to a resource that the client came with.
func (d *deltaState) mayLeadHere(v fanout.View, name string, member *cache.Resource, as released) bool {
	if member != nil || as.givenUp {
		return false
	}
	return d.brings(name) && d.unresolved(v)
}

// mayHaveEnded notes that the client may have dropped a resource because its TTL has run out.
func (d *deltaState) mayHaveEnded(v fanout.View, name string) {
	version, some := d.of(v, name)
	if some && d.mayEnd(v, name) && v.Here(name, version) == nil {
		d.exact.void(name)
		d.exact.note(name, "", true)
	}
}

// fallsTo lists what is sent for a resource that no name leads to any more: the member of the
// wildcard's set, or, on Delta, the removal.
func (x *exchange) fallsTo(v fanout.View, name string, member *cache.Resource, p *part) {
	_, some := x.of(v, name)
	as := x.released[name]
	ended := !as.brought && x.mayEnd(v, name)
	differs := member != nil && (ended || x.fallsToChange(v, name))
	switch {
	case member == nil && x.answersTo(v, name):
		delete(x.released, name)
		return // that name's answer says the rest
	case differs && x.leavesOut(v, member, p):
		delete(x.released, name)
		return // the error says the rest
	case member == nil:
		if owed := some || as.givenUp; !owed || !x.delta {
			break
		}
		if x.brings(name) {
			x.exact.note(name, "", true) // until the removal is sent
		}
		p.removed = append(p.removed, name)
		p.removedNames = append(p.removedNames, name)
		return // the debt is paid when the removal is sent
	case differs:
		p.resources, p.mixed = append(p.resources, member), true
		x.sentAhead(v, name, member)
	}
	x.paidReleased(name)
}

// paidReleased notes that the client has been sent the state of a released resource.
func (x *exchange) paidReleased(name string) {
	delete(x.released, name)
	x.exact.forget(name)
}

// noteSent notes that the client is sent the resources of a part.
func (x *exchange) noteSent(v fanout.View, p *part) {
	mixes := wildcard(v) && len(v.Names()) > 0
	for _, r := range p.resources {
		if r.Negative {
			continue
		}
		x.aliased = x.aliased || len(r.Aliases) > 0
		x.exact.sent(x.exact.find(r.Name), r.Version, p.position)
		drop(&x.came, r.Name)
		if mixes || len(r.Aliases) > 0 {
			sentFor(v, r)
		}
		if _, released := x.released[r.Name]; !released && !x.exact.find(r.Name).notes() {
			continue
		}
		if member, certain := x.falls(v, r.Name); certain && member == r {
			x.paidReleased(r.Name)
		}
	}
}

// sentFor notes that a resource was sent, of the names for which it was to be sent again.
func sentFor(v fanout.View, r *cache.Resource) {
	for name := range r.Names() {
		if id, ok := v.Lookup(name); ok {
			v.Sent(id)
		}
	}
}

// mayEnd reports whether the client's copy of a resource, which it has because of a name, may have a TTL of
// its own that has run out. A copy that the client has rejected is not sent again (NACK-4).
func (x *exchange) mayEnd(v fanout.View, name string) bool {
	noted := x.exact.find(name)
	rejected := noted != nil && x.hasRejected(noted.at)
	return x.ttl && v.AnyTTL() && !rejected
}

// answersTo reports whether some name of the client's leads to a resource, or may: its own may have no answer.
func (x *exchange) answersTo(v fanout.View, name string) bool {
	if id, ok := v.Lookup(name); ok {
		a := v.Answer(id)
		if a.State == cache.Unknown || a.Resource != nil && a.Resource.Name == name {
			return true
		}
	}
	return v.Leads(name)
}

// falls returns the member of the wildcard's set, or nil, that remains for the client of a
// resource that it has because of a name. certain is false while this is unknown, or from disk and
// the client came with the resource (RECON-19).
func (x *exchange) falls(v fanout.View, name string) (member *cache.Resource, certain bool) {
	subscribed, synced := v.Wildcard()
	if subscribes(v, name) || v.Leads(name) || !subscribed {
		return nil, true
	}
	member = v.Set().Member(name)
	confirmed := !v.Set().Restored() || member != nil && !x.brings(name)
	return member, synced && confirmed
}

// fallsToChange reports whether what remains of a released resource is a change, or may be one.
func (x *exchange) fallsToChange(v fanout.View, name string) bool {
	member, certain := x.falls(v, name)
	if !certain || member == nil {
		return false
	}
	return x.released[name].givenUp || !x.holds(v, member)
}

// collectReleased lists the released resources that are members of the wildcard's set. The others
// are removed without a message (DOWN-SOTW-10).
func (s *sotwState) collectReleased(v fanout.View, push bool, p *part) {
	if len(s.released) == 0 || !push || s.postponed {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(s.released)) {
		if member, certain := s.falls(v, name); s.postpones && !p.must && s.fallsToChange(v, name) {
			s.postponed = true
		} else if certain && (member == nil || !s.wildcardAsked) { // else the set that is due brings it
			s.fallsTo(v, name, member, p)
		}
	}
}

// drops forgets what the client drops. It keeps the members of the wildcard's set if it asks for that, and resources that
// bear one of its names.
func (s *sotwState) drops(v fanout.View) {
	for noted := range s.exact.all(false) {
		if subscribes(v, noted.name) || wildcard(v) && v.Set().Member(noted.name) != nil {
			continue
		}
		s.exact.forget(noted.name)
		s.version = "" // the client may not have all of the last set any more
	}
}
