package twin

import (
	"slices"
	"strings"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// What the control plane says to the relay.

// upSaid takes in a response of the control plane's. bad: it must be NACKed.
func (c *Checker) upSaid(id int, resp *discovery.DeltaDiscoveryResponse, bad bool) {
	k, _ := named(resp.GetTypeUrl())
	s := c.streams[id]
	if s == nil || s.lanes[k.name] == nil {
		return // UP-10
	}
	c.silence() // names that were silent for long enough are absent before this response counts (UP-19)
	l, known := s.lanes[k.name], c.known[k.name]
	l.pending[resp.GetNonce()] = bad
	answered := l.heard
	l.heard = true
	if len(l.names) == 0 && (l.wildcard || len(Union(c.interests(k))) == 0) {
		l.heard = true // it was a response of the type (MISS-4)
		if !l.wildcard && !s.sotw && k.full {
			c.overheard(k, s, l, resp)
		}
		return // H-32
	}
	v := known.voice(l.wildcard)
	v.warm = false
	if !l.wildcard {
		v.vouch()
	}
	l.latest, s.latest = c.now, c.now
	for _, cl := range c.clients {
		c.mayAwait(k, cl)
	}
	c.events++
	c.news = true
	c.works(true)
	// A SotW request cannot give a wildcard up: if it is wanted again, it is asked for on another stream.
	readers := c.readers(k, v) // once: a look at all names for each resource would take hours
	lapsed := s.sotw && l.wildcard && c.since[k.name][wildcard] > l.asked
	for _, r := range resp.GetResources() {
		name := r.GetName()
		c.sound(k, l.wildcard, append(slices.Clone(r.GetAliases()), name)...)
		if r.GetResource() == nil && c.renewed(k, v, r) {
			continue
		}
		if r.GetResource() == nil {
			for _, alias := range r.GetAliases() {
				if !v.matches(alias, surely) {
					c.overcome(k, alias, nil)
					c.mayResend(k, readers, v.remove(alias, c.events))
				}
			}
			continue
		}
		w := word{label: c.bodies[string(r.GetResource().GetValue())].label, version: r.GetVersion(), aliases: r.GetAliases(), at: c.events, plane: s.plane, ends: c.ends(r.GetTtl())}
		c.leases(k, v, name, v.words[name].ends, w.ends)
		if before := v.words[name]; !answered && l.shown[name] != "" && (l.shown[name] == w.version || before.present && before.at < c.events && before.label == w.label) {
			l.sign = true
		}
		c.overcome(k, name, w.aliases)
		for _, asked := range append(slices.Clone(w.aliases), name) {
			delete(l.erred, asked)
			delete(l.paired, asked)
		}
		covered, surely := c.covered(k, l, name, w.aliases)
		unasked := k.full && !l.wildcard && !covered && r.GetTtl() == nil // kept, as long as there is room (UP-9)
		_, subscribed := l.names[name]
		l.unasked = l.unasked || k.full && !l.wildcard && !s.sotw && !subscribed
		w.unasked = unasked
		before := v.words[name]
		left, isLeft := known.leftOver(name, c.wildcardAsked(k), c.lapsed(k))
		switch {
		case before.or != "" && (before.label == w.label || l.wildcard && isLeft && !c.lapsed(k)):
			w.or, w.orAliases, w.orEnds = before.or, before.orAliases, before.orEnds // the response repeats it, or says more before the set is complete
		case l.wildcard && before.present && (c.lapsed(k) || isLeft):
			w.or, w.orAliases, w.orEnds = before.label, before.aliases, before.ends // what the wildcard has left stays until the set is complete (WILD-11)
		}
		if w.unsure = !surely && !l.wildcard || lapsed; l.wildcard || covered || unasked {
			c.mayResend(k, readers, v.set(name, w))
			c.meets(k, name)
		} else if _, had := v.words[name]; had {
			delete(v.words, name) // it has lost the alias it was wanted for
			c.mayResend(k, readers, v.lose(before))
		}
		l.opens(v, before.aliases)
		for _, alias := range before.aliases { // an alias that it does not list any more may lead to nothing (UP-7)
			c.gone[k.name][alias] = c.gone[k.name][alias] || !l.wildcard && !v.matched(alias)
		}
		if isLeft && !l.wildcard { // this outweighs what the wildcard has left to names, except to aliases listed here (NAME-5)
			left.aliases = slices.DeleteFunc(slices.Concat(left.aliases, left.orAliases), func(alias string) bool {
				own, said := known.byName.words[alias]
				return slices.Contains(w.aliases, alias) || said && !own.present && !own.silent && !own.unsure // it was left nothing
			})
			left.unsure = left.unsure || !c.lapsed(k) // it may have been wanted again before the relay had given it up
			c.changed(k, known.byName, known.byName.lose(left))
		}
	}
	for _, name := range resp.GetRemovedResources() {
		c.overcome(k, name, nil)
		c.sound(k, l.wildcard, name)
		if l.paired[name] && c.awaits(k, s, name) && !c.askedAlone(k, l, name) {
			continue // it was asked for again, and a removal is no answer then (UP-19)
		}
		if w := v.words[name]; l.wildcard && w.present && !(v.complete && v.completed >= c.wildcardAsked(k)) { // what was left to names stays until then (WILD-11)
			w.unsure, w.at, l.leaving = true, c.events, append(l.leaving, name)
			v.words[name] = w
			continue
		}
		aliased := len(v.words[name].aliases) > 0
		lost := v.remove(name, c.events)
		c.mayResend(k, readers, lost)
		c.outweighs(k, l, name)
		if aliased {
			l.opens(v, lost)
		}
		for _, alias := range lost {
			c.gone[k.name][alias] = c.gone[k.name][alias] || !l.wildcard && !v.matches(alias, surely)
		}
		c.gone[k.name][name] = true
	}
	for _, e := range resp.GetResourceErrors() {
		name := e.GetResourceName().GetName()
		_, asked := l.names[name]
		if _, again := l.again[name]; asked || again || l.wildcard { // again: the answer to an earlier subscribe (UP-19)
			l.erred[name] = true
			delete(l.paired, name)
			if !l.wildcard {
				c.forwards(k, e)
			}
		} else if !s.sotw {
			continue // it says nothing of what was not asked for (ERR-8)
		}
		known.erred[name] = true
		if e.GetErrorDetail().GetCode() == notFound {
			c.mayResend(k, readers, v.remove(name, c.events))
			c.outweighs(k, l, name)
			c.gone[k.name][name] = true
		}
	}
	if s.sotw && k.full && !l.wildcard && !bad { // it lists all that the names lead to (TRANSLATE-5)
		c.clears(id, k.name, false, true)
	}
	if l.wildcard {
		if l.first.IsZero() {
			l.first = c.now
		}
		if c.settle == 0 && !c.marks || s.sotw || c.marks && strings.HasSuffix(resp.GetNonce(), "-0") {
			c.whole(k, l, v)
			c.clears(id, k.name, true, s.sotw && k.full && !bad)
		}
	}
}

// opens notes that names which were led to a resource have no answer: it is gone, or has lost them, and the stream
// has not been asked for them (UP-8).
func (l *relayLane) opens(v *voice, names []string) {
	for _, name := range names {
		if _, asked := l.names[name]; !asked && !l.wildcard && v.denied(name) {
			delete(v.words, name)
		}
	}
}

// awaits reports whether a name that may have been asked for again has no answer. If clients have given it up since
// it was subscribed, it may have been subscribed a second time instead, which is certain only once it has been silent. A fault
// may keep its silence from counting (ERR-10); the time to answer ends all the same.
func (c *Checker) awaits(k kind, s *relayStream, name string) bool {
	w, said := c.known[k.name].byName.words[name]
	left, was := c.wanted[k.name][name]
	l := s.lanes[k.name]
	since := l.names[name]
	over := c.now.Sub(since) >= c.missing && c.alive(s, since)
	until := c.left[k.name][name]
	if c.evicts || c.now.Sub(left) >= c.linger {
		until = max(until, c.since[k.name][name]) // it may have been given up later, while it lingered
	}
	return w.silent || (!said || w.unsure) && !over && (!was || left.Before(since) || until <= l.before[name])
}

// whole notes that a wildcard's set is complete. Of what the stream showed no version, what upstream has
// not sent again may be gone (RECON-12).
func (c *Checker) whole(k kind, l *relayLane, v *voice) {
	for _, name := range l.leaving {
		if v.words[name].unsure {
			c.changed(k, v, v.remove(name, c.events))
		}
	}
	l.leaving = nil
	v.complete, v.completed, v.settling, v.grew = true, c.events, false, false
	v.doubt(l.doubtUpTo, l.shown)
	v.certain()
	l.doubtUpTo = 0
}

const notFound = 5

// covered reports whether the relay has asked for a resource or is about to, and whether it surely has.
func (c *Checker) covered(k kind, l *relayLane, name string, aliases []string) (covered, surely bool) {
	for _, asked := range append(slices.Clone(aliases), name) {
		if _, is := l.names[asked]; is {
			// A name that is absent does not linger (UP-7).
			covered, surely = true, surely || !c.gone[k.name][asked] || slices.ContainsFunc(c.interests(k), func(i *Interest) bool { return i.Names[asked] || i.Wildcard && asked == wildcard })
		}
	}
	if covered {
		return covered, surely
	}
	return c.isWanted(k, name) || slices.ContainsFunc(aliases, func(alias string) bool { return c.isWanted(k, alias) }), false
}

// changed notes that clients may be sent these names again (DOWN-DELTA-14). A SotW client may also be
// sent again what its names lead to no more, which no response has told it (DOWN-SOTW-10).
func (c *Checker) changed(k kind, v *voice, names []string) { c.mayResend(k, c.readers(k, v), names) }

// readers are the clients that have what they ask for from one of the two lanes.
func (c *Checker) readers(k kind, v *voice) (readers []*clientState) {
	for _, cl := range c.clients {
		if t := cl.topics[k.name]; t != nil && c.known[k.name].reads(&t.interest, v) {
			readers = append(readers, cl)
		}
	}
	return readers
}

func (c *Checker) mayResend(k kind, readers []*clientState, names []string) {
	for _, cl := range readers {
		t := cl.topics[k.name]
		for _, name := range names {
			t.owed[name] = true
		}
		if len(t.holds) > 1000 {
			continue // a look at all of them at each response would take hours
		}
		for name := range t.holds {
			if len(names) > 0 && cl.sotw && !k.full && !t.interest.Wildcard && !c.known[k.name].leads(name, &t.interest) {
				t.owed[name] = true
			}
		}
	}
}

// reads reports whether a client has what it asks for from one of the two lanes.
func (k *knowledge) reads(i *Interest, v *voice) bool {
	if v == k.byName {
		return len(i.Names) > 0
	}
	if i.Wildcard {
		return true
	}
	for name := range i.Names {
		if !k.byName.answered(name) || k.byName.words[name].unsure {
			return true
		}
	}
	return false
}

// settled notes which wildcard sets are complete by now (RECON-16).
func (c *Checker) settled() {
	for id, s := range c.streams {
		for kind, l := range s.lanes {
			if !l.wildcard && c.now.Sub(l.begun) >= settleCap {
				c.known[kind].byName.warm = false
			}
			if !l.wildcard && c.now.Sub(l.begun) >= c.missing && c.alive(s, l.begun) {
				c.known[kind].byName.confirm(l.shown, func(name string) bool {
					return c.doubted(kind, false, name) || l.shownInPart(c.known[kind].byName, name)
				})
			}
			if givenUp := len(l.names) == 0; l.wildcard && !givenUp && !c.marks && !l.first.IsZero() && c.now.Sub(l.first) >= c.settle && !(l.sign && c.unsaid(kindOf(kind), l)) {
				c.whole(kindOf(kind), l, c.known[kind].byWildcard)
				c.clears(id, kind, true, false)
			}
		}
	}
}

// shownInPart reports whether a name that the stream asks for leads to a resource, and to another from disk of which
// no version was shown. Silence confirms names, with all that they lead to (RECON-19).
func (l *relayLane) shownInPart(v *voice, name string) bool {
	return slices.ContainsFunc(append(slices.Clone(v.words[name].aliases), name), func(asked string) bool {
		_, is := l.names[asked]
		return is && slices.ContainsFunc(aliased(asked), func(other string) bool {
			w := v.words[other]
			return w.present && w.restored && l.shown[other] == "" && answers(other, w.aliases, asked)
		})
	})
}

// unsaid reports whether a server has not spoken of something, not even in an error, since it was shown a
// version of it. If it repeats others, it is asked once more, without versions, before its set is complete (RECON-13).
func (c *Checker) unsaid(k kind, l *relayLane) bool {
	for name, w := range c.known[k.name].voice(l.wildcard).words {
		d := c.doubts[k.name][l.wildcard]
		if faulty := d != nil && d.names[name] != 0; w.present && l.shown[name] != "" && w.at <= l.resumed && !faulty && !l.erred[name] {
			return true
		}
	}
	return false
}

// grows reports whether the relay may be waiting for more of a wildcard's set.
func (c *Checker) grows(k kind) bool {
	for _, s := range c.streams {
		if s.grows(k, c.now.Add(-c.settle)) {
			return true
		}
	}
	return c.known[k.name].byWildcard.grew
}

// grows reports whether something of a wildcard's set has come since a time.
func (s *relayStream) grows(k kind, since time.Time) bool {
	l := s.lanes[k.name]
	return l != nil && l.wildcard && l.latest.After(since)
}
