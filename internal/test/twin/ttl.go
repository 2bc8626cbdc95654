package twin

import (
	"cmp"
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Resources with a TTL (TTL-1 to -12). The control plane renews them by sending them again, with a body or
// without. What it does not renew in time goes from the relay and from every client; the control plane,
// which keeps the same account, then sends it again as if it never had. Clients that know TTLs are sent
// what is left of them; the others are sent a removal when one has ended.

// takesTTL reports whether a client knows TTLs, as every other pair of clients does.
func (p *player) takesTTL() bool { return p.id == 1 || p.id == 2 }

// ttlFeatures is how a client says so.
var ttlFeatures = []string{"xds.config.supports-resource-ttl", "xds.config.resource-in-sotw"}

// setTTL gives resources another TTL, or none, which is sent with their bodies.
func (p *controlPlane) setTTL(k kind, names []string, ttl time.Duration) {
	if ttl > 0 {
		ttl += p.between
	}
	for _, name := range names {
		r, ok := p.world[k.name][name]
		if !ok || r.TTL == ttl {
			continue
		}
		r.TTL = ttl
		p.world[k.name][name], p.timed[name] = r, true
		for _, s := range p.streams {
			if l := s.lanes[k.name]; l != nil && l.sent[name] != "" {
				l.sent[name] = "?"
			}
		}
	}
}

// limited are the names of a type that have a TTL.
func (p *controlPlane) limited(k kind) (names []string) {
	for name, r := range p.world[k.name] {
		if r.TTL > 0 {
			names = append(names, name)
		}
	}
	return names
}

// expires notes until when a resource is good that is being sent.
func (p *controlPlane) expires(l *serverLane, name string, ttl time.Duration) {
	if delete(l.ends, name); ttl > 0 {
		l.ends[name] = p.now().Add(ttl)
	}
}

// lapse forgets what was sent and not renewed in time.
func (p *controlPlane) lapse(k kind, l *serverLane) {
	for name, at := range l.ends {
		if !at.After(p.now()) {
			delete(l.ends, name)
			if r, is := p.world[k.name][name]; is && p.wants(k, l, name, r.Aliases) { // else it says so
				delete(l.sent, name)
			}
			p.changes++
		}
	}
}

// heartbeats renews names on a stream without their bodies (TTL-4); last: and for good (TTL-1).
func (p *controlPlane) heartbeats(l *serverLane, k kind, names []string, last bool) (renewed []*discovery.Resource) {
	if p.lapse(k, l); p.is(remembers) && k.full {
		return nil // what it has sent unasked the relay need not have
	}
	asks := Interest{Names: l.names, Wildcard: l.wildcard}
	for _, name := range names {
		r, ok := p.world[k.name][name]
		if !ok || l.ends[name].IsZero() || l.sent[name] != p.version(r) || !asks.Covers(name, l.as[name]) || slices.ContainsFunc(renewed, func(b *discovery.Resource) bool { return b.GetName() == name }) {
			continue
		}
		b := &discovery.Resource{Name: name, Version: p.version(r)}
		if r.TTL > 0 && !last {
			b.Ttl = durationpb.New(r.TTL)
			l.ends[name] = p.now().Add(r.TTL)
		} else {
			delete(l.ends, name)
		}
		renewed = append(renewed, b)
	}
	return renewed
}

// ends is when what comes with a TTL expires; zero: never.
func (c *Checker) ends(ttl *durationpb.Duration) time.Time {
	if ttl == nil {
		return time.Time{}
	}
	return c.now.Add(ttl.AsDuration())
}

// renewed takes in a bodyless resource, if it renews one that is there (TTL-4).
func (c *Checker) renewed(k kind, v *voice, r *discovery.Resource) bool {
	w, ok := v.present(r.GetName())
	if !ok || w.version != r.GetVersion() {
		return false
	}
	c.leases(k, v, r.GetName(), w.ends, c.ends(r.GetTtl()))
	w.ends = c.ends(r.GetTtl())
	v.words[r.GetName()] = w
	return true
}

// leases notes that a TTL was set, renewed or removed: clients that know TTLs are sent that.
func (c *Checker) leases(k kind, v *voice, name string, was, is time.Time) {
	if was.IsZero() && is.IsZero() {
		return
	}
	v.limited[name] = v.limited[name] || !was.IsZero() && !v.words[name].unsure || !is.IsZero()
	for _, cl := range c.clients {
		if t := cl.topics[k.name]; t != nil && cl.ttl {
			t.owed[name] = true
			for _, other := range poolNames { // an alias may lead to both, and renews both
				if len(c.known[k.name].byName.words[other].aliases) > 0 {
					t.owed[other] = true
				}
			}
		}
	}
}

// setsTTL reports whether a full set renews, or ends, the TTL of what the client has. Such a set waits for no
// clusters, and brings the changes that do (ORDER-3).
func (c *Checker) setsTTL(cl *clientState, k kind, t *topic, r content) bool {
	return k.full && cl.ttl && t.owed[r.name] && c.known[k.name].hadTTL(r.name) && t.holds[r.name].label == r.label
}

// claims notes what a SotW client does not hold any more, since it has expired, and says all the same that it holds
// with the version of the whole set (§0).
func (t *topic) claims(earlier map[string]held) {
	for name, h := range earlier {
		if _, holds := t.holds[name]; !holds {
			t.renamed[name] = h.label
		}
	}
}

// expire removes what was not renewed in time (TTL-2), and what the wildcard had lent of it.
func (c *Checker) expire() {
	for _, k := range kinds {
		known := c.known[k.name]
		for _, v := range known.voices() {
			for name, w := range v.words {
				if !w.present || w.ends.IsZero() || w.ends.After(c.now) {
					continue
				}
				c.events++
				c.news = true
				c.overcome(k, name, w.aliases)
				lost := v.remove(name, c.events)
				c.changed(k, v, lost)
				v.words[name] = word{at: c.events, expired: true, was: &w, unsure: w.unsure}
				if v == known.byName {
					for _, asked := range lost {
						c.gone[k.name][asked] = c.gone[k.name][asked] || !v.matches(asked, surely)
						if _, before := c.before[k.name][asked]; asked != name && !before && !c.carries(k, asked) && v.denied(asked) {
							v.words[asked] = word{at: c.events, silent: true} // upstream was not asked for it (UP-8): it may be lent
						}
					}
					continue
				}
				for _, lent := range append(slices.Clone(w.aliases), name) {
					if _, said := known.byName.words[lent]; !said && slices.ContainsFunc(c.interests(k), func(i *Interest) bool { return i.Names[lent] }) {
						known.byName.words[lent] = word{at: c.events, expired: true, was: &w, silent: true} // it may be lent again
						c.gone[k.name][lent] = true
					}
				}
			}
		}
	}
}

// lasts reports whether the control plane has said of a content that it ends then.
func (k *knowledge) lasts(name, label string, ends time.Time) bool {
	then := func(said time.Time) bool {
		return said.Equal(ends) || !said.IsZero() && !ends.IsZero() && said.Sub(ends).Abs() <= time.Millisecond
	}
	for _, v := range k.voices() {
		if w, ok := v.present(name); ok && (w.label == label && then(w.ends) || w.or == label && then(w.orEnds)) {
			return true
		}
	}
	return false
}

// unlimited reports whether a content has no TTL, and its name has had one.
func (k *knowledge) unlimited(name, label string) bool {
	return k.hadTTL(name) && k.lasts(name, label, time.Time{})
}

func (k *knowledge) hadTTL(name string) bool {
	_, byName := k.byName.limited[name]
	_, byWildcard := k.byWildcard.limited[name]
	return byName || byWildcard
}

// unlimited judges that a client does not hold until some time what has no TTL any more (TTL-12). A relay
// that has begun since, and never heard of the TTL on the lane that serves the client, cannot know: versions
// do not tell (RECON-1).
func (c *Checker) unlimited(id int, k kind, cl *clientState, t *topic, v *voice, name string) {
	w := v.words[name]
	if h := t.holds[name]; cl.ttl && !h.rejected && v.limited[name] && h.label == w.label && w.ends.IsZero() && !h.ends.IsZero() {
		c.fail("TTL-12", "c%d %s: %s=%s has no TTL, and the client holds it until %v", id, k.name, name, w.label, h.ends)
	}
}

// lasting judges until when a client is told that a resource is good.
func (c *Checker) lasting(who string, k kind, cl *clientState, name, label string, ttl *durationpb.Duration) (ends time.Time) {
	switch ends = c.ends(ttl); {
	case !cl.ttl && ttl != nil:
		c.fail("TTL-6", "%s is sent a TTL, and has not said that it knows them", who)
	case cl.ttl && !c.known[k.name].lasts(name, label, ends):
		c.fail("TTL-5", "%s is told that %s=%s is good until %v, and upstream has not said so", who, name, label, ends)
	}
	return ends
}

// heartbeat judges a resource without a body, which renews what a client has (TTL-4). spared: the client
// came back with the resource.
func (c *Checker) heartbeat(who string, k kind, cl *clientState, t *topic, name, version string, ttl *durationpb.Duration) (spared bool) {
	h, has := t.holds[name]
	switch {
	case !cl.ttl:
		c.fail("TTL-6", "%s is sent a heartbeat, and has not said that it knows them", who)
	case !has:
		c.fail("TTL-4", "%s is sent a heartbeat for %s, which it does not have", who, name)
	case !cl.sotw && version != h.version:
		c.fail("TTL-4", "%s is sent a heartbeat for %s at %s, and has it at %s", who, name, version, h.version)
	case k.full && cl.sotw:
		c.fail("TTL-8", "%s is sent %s without its body, which says that it is gone", who, name)
	}
	spared = t.brought[name]
	ends := c.lasting(who, k, cl, name, h.label, ttl)
	if !t.owed[name] && !spared && ends.Equal(h.ends) {
		c.fail("DOWN-DELTA-14", "%s is sent a heartbeat for %s, and has it until then", who, name)
	}
	h.ends = ends
	t.holds[name] = h
	delete(t.owed, name)
	return spared
}

// dated judges until when the resources of a client that keeps up are good: what is renewed stays, and what
// has expired is gone (TTL-2, TTL-4).
func (c *Checker) dated(id int, k kind, cl *clientState, t *topic) {
	known := c.known[k.name]
	for name, h := range t.holds {
		if !t.interest.Covers(name, h.aliases) {
			continue
		}
		if cl.ttl && !h.ends.IsZero() && !h.ends.After(c.now) {
			continue // the client has dropped it
		}
		asked, before := c.since[k.name][name], known.byName.words[name]
		earlier := c.askedSince(k, t, name, h.aliases, before.at)
		expired := known.byWildcard.words[name].expired || before.expired && !earlier && h.since <= before.at // else it is another copy
		w, byName := known.byName.present(name)
		lost := h.aliases // it may not have been told yet that they do not lead there any more
		if cl.sotw && !k.full {
			lost = nil // nor will it (DOWN-SOTW-10)
		}
		byName = byName && t.interest.Named(name, append(slices.Clone(lost), w.aliases...))
		_, byWildcard := known.byWildcard.present(name)
		member := known.byWildcard.words[name]
		left := c.lapsed(k) && t.interest.Named(name, member.aliases) // what is left to one name has its aliases
		own := t.interest.Names[name] && known.byName.answered(name)  // the wildcard's copy is not for this client (WILD-16)
		byWildcard = byWildcard && (t.interest.Wildcard && !own || known.borrows(name, &t.interest))
		// Who asks by name for what has expired as a member hears of it with the name's answer (WILD-16).
		answered := known.byName.answered(name) && !before.unsure && !(before.expired && before.at < asked) // what an alias led to before is no answer
		awaits := t.interest.Names[name] && !answered && (asked > known.byWildcard.words[name].at || known.byWildcard.words[name].unsure)
		// So does who has it by an alias that it had lost before, though the wildcard has it again since.
		was := cmp.Or(member.was, before.was)
		awaits = awaits || was != nil && !t.interest.Named(name, was.aliases) &&
			slices.ContainsFunc(h.aliases, func(alias string) bool { return t.interest.Names[alias] && !known.byName.answered(alias) })
		switch {
		case expired && (awaits || cl.holdsBack(k)):
		case expired && !byName && !byWildcard && !left && (!cl.sotw || k.full) && !(t.interest.Wildcard && (c.mayDoubt(k.name, true, name) || c.hides(k, true))) && (t.interest.Names[name] || !c.hides(k, false) && !c.mayDoubt(k.name, false, name)):
			c.fail("TTL-2", "c%d %s keeps up, and holds %s=%s, which has expired", id, k.name, name, h.label)
		case cl.ttl && !h.rejected && (byName && !w.unsure || byWildcard && !member.unsure) && known.states(name, h.label) && !known.lasts(name, h.label, h.ends):
			c.fail("TTL-4", "c%d %s keeps up, and holds %s=%s until %v, which is not what upstream says", id, k.name, name, h.label, h.ends)
		}
	}
}

// askedSince reports whether a client asks for a resource by names, all of which clients began to ask for after an event.
func (c *Checker) askedSince(k kind, t *topic, name string, aliases []string, at int) (since bool) {
	for _, asked := range append(slices.Clone(aliases), name) {
		if t.interest.Names[asked] {
			if c.since[k.name][asked] <= at {
				return false
			}
			since = true
		}
	}
	return since
}

// holdsBack reports whether removals of a type may wait for Listeners that the client came with and
// that are not judged yet (ORDER-2).
func (cl *clientState) holdsBack(k kind) bool {
	lds := cl.topics["LDS"]
	return (k.name == "CDS" || k.name == "EDS") && lds != nil && len(lds.brought) > 0
}

// unwrap takes a resource out of what a SotW response has it in; heartbeat: it has no body, and
// renews what the client has.
func (c *Checker) unwrap(who string, k kind, cl *clientState, t *topic, body *anypb.Any) (inner *anypb.Any, ttl *durationpb.Duration, heartbeat bool) {
	var r discovery.Resource
	if !body.MessageIs(&r) {
		return body, nil, false
	}
	if err := body.UnmarshalTo(&r); err != nil || r.GetTtl() == nil {
		c.fail("DOWN-SOTW-15", "%s: a resource is wrapped, and has no TTL", who)
	}
	if r.GetResource() == nil {
		c.heartbeat(who, k, cl, t, r.GetName(), r.GetVersion(), r.GetTtl())
		return nil, nil, true
	}
	return r.GetResource(), r.GetTtl(), false
}

// dropExpired forgets what has expired on disk, which a relay does not load. Times are in milliseconds there.
func (k *knowledge) dropExpired(now time.Time) {
	for _, v := range k.voices() {
		for name, w := range v.words {
			if w.ends = w.ends.Truncate(time.Millisecond); !w.ends.IsZero() && !w.ends.After(now) {
				delete(v.words, name)
				continue
			}
			v.words[name] = w
		}
	}
}
