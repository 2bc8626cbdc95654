package twin

import (
	"maps"
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// What the relay forgets, and what it shows when a stream begins.

// evicted reports whether a resource may not have lingered: no client wanted it for some time, and only one
// name of a type lingers.
func (c *Checker) evicted(k kind, name string, w word) bool {
	if !c.evicts {
		return false
	}
	left := func(asked string) bool { _, left := c.wanted[k.name][asked]; return left }
	return left(name) || slices.ContainsFunc(w.aliases, left)
}

// carried reports whether some stream asks for names of a type.
func (c *Checker) carried(k kind) bool {
	for _, s := range c.streams {
		if l := s.lanes[k.name]; l != nil && !l.wildcard {
			return true
		}
	}
	return false
}

// renews notes that some client asks for names which nobody wanted. If all names that lead to a resource have lingered
// for as long as they may, and no stream carries one, the relay may have forgotten it without a word to upstream.
func (c *Checker) renews(k kind, names []string) {
	kept := func(name string) bool {
		left, wanted := c.wanted[k.name][name]
		return c.carries(k, name) || wanted && c.now.Sub(left) < c.linger && !c.evicts
	}
	forgotten := map[string]bool{}
	for _, name := range names {
		forgotten[name] = !kept(name)
	}
	if !slices.Contains(slices.Collect(maps.Values(forgotten)), true) {
		return
	}
	remembered := c.remembered(k)
	c.known[k.name].byName.fades(func(other string, w word) bool {
		led := append(slices.Clone(w.aliases), other)
		_, wanted := remembered.words[other]
		return !wanted && slices.ContainsFunc(led, func(name string) bool { return forgotten[name] }) && !slices.ContainsFunc(led, kept)
	})
	if forgotten[wildcard] {
		c.known[k.name].byWildcard.fades(func(string, word) bool { return true })
	}
}

// fades notes that the relay may have forgotten resources, and what it has heard of their TTLs.
func (v *voice) fades(of func(name string, w word) bool) {
	for name, w := range v.words {
		if w.present && of(name, w) {
			w.unsure = true
			v.words[name] = w
			if v.limited[name] {
				v.limited[name] = false
			}
		}
	}
}

// carries reports whether some stream asks for a name.
func (c *Checker) carries(k kind, name string) bool {
	for _, s := range c.streams {
		if l := s.lanes[k.name]; l != nil && !l.names[name].IsZero() {
			return true
		}
	}
	return false
}

// follows is a lane as it is once the requests that follow the first have come, too: its names may not
// fit into one (UP-17).
func (c *Checker) follows(k kind, l *relayLane) *relayLane {
	all := *l
	if all.names = maps.Clone(l.names); !c.settings.Splits() || l.wildcard {
		return &all
	}
	sure := &Interest{Names: stamped(l.names)}
	for _, name := range Union(c.interests(k)) {
		sure.Names[name] = true
	}
	names := slices.Collect(maps.Keys(c.wanted[k.name]))
	names = slices.DeleteFunc(names, func(name string) bool { return !c.lingers(k, name) })
	for _, name := range append(names, slices.Collect(maps.Keys(sure.Names))...) {
		if _, ok := all.names[name]; !ok && name != wildcard {
			all.names[name] = c.now
		}
	}
	delete(sure.Names, wildcard) // this is about names
	known := c.known[k.name].byName
	for name, w := range known.words { // a name that only lingers, or is wanted again, may have been given up instead
		w.unsure = w.unsure || w.present && !c.kept(k, sure.Names, name, w)
		known.words[name] = w
	}
	return &all
}

// upForgets drops what the relay must forget: what it unsubscribes (UP-8), or on a new stream all that it
// does not ask for again. added are names that the same request asks for.
func (c *Checker) upForgets(k kind, l *relayLane, unsubscribed, added []string) {
	switch {
	case !l.wildcard:
		again := map[string]bool{} // names that are wanted again by now: what was said since may be used (H-1)
		for _, name := range Union(c.interests(k)) {
			again[name] = slices.Contains(unsubscribed, name)
		}
		maps.DeleteFunc(again, func(_ string, again bool) bool { return !again })
		known := c.known[k.name]
		if c.lapsed(k) {
			known.outweighsAll()
		}
		known.byName.forget(l.names, unsubscribed, added, func(name string, w word) bool {
			gaveUp, was := c.wanted[k.name][name]
			// What is given up and wanted again in one moment may never have gone.
			atOnce := again[name] && was && gaveUp.Equal(c.now)
			return atOnce || c.kept(k, again, name, w) || c.handedOn(k, again, name, w) || unsubscribed != nil && l.unasked // it may be kept (UP-9)
		})
	case len(l.names) == 0:
		c.forgetWildcard(k)
	}
}

// handedOn reports whether clients have wanted a resource without a break since it came, by one of its names
// after the other, the last of which they want again. Then the relay keeps it (UP-8).
func (c *Checker) handedOn(k kind, again map[string]bool, name string, w word) bool {
	for reach, last := w.at, -1; reach > last; {
		last = reach
		for _, led := range append(slices.Clone(w.aliases), name) {
			if since, asked := c.since[k.name][led]; asked && since <= last {
				if again[led] {
					return true
				}
				reach = max(reach, c.left[k.name][led])
			}
		}
	}
	return false
}

func stamped(names map[string]time.Time) map[string]bool {
	set := map[string]bool{}
	for name := range names {
		set[name] = true
	}
	return set
}

// upResumed judges the versions that a stream begins with (RECON-6, RECON-7).
func (c *Checker) upResumed(k kind, s *relayStream, l *relayLane, versions map[string]string) {
	sotw := s.sotw
	v := c.known[k.name].voice(l.wildcard)
	if !sotw {
		l.doubtUpTo = c.events
	}
	asks := &Interest{Names: stamped(l.names), Wildcard: l.wildcard}
	names := map[string]bool{wildcard: true}
	if !l.wildcard {
		// The relay may have forgotten what only such names led to as were given up, or were not
		// asked for when the last stream ended.
		names = stamped(l.names)
		maps.DeleteFunc(names, func(name string, _ bool) bool { _, asked := c.before[k.name][name]; return !asked })
	}
	for name, w := range v.words {
		if !l.wildcard && !w.present && c.since[k.name][name] > w.at {
			w.unsure = true // an absent name does not outlive its last client, and was asked for again since (UP-7)
			v.words[name] = w
		}
		if _, ok := versions[name]; w.present && !ok && (c.evicted(k, name, w) || !c.kept(k, names, name, w)) {
			// Given up while there was no stream. If it was asked for again the relay may
			// have it still; SotW cannot tell what there is.
			w.unsure = true
			v.words[name] = w
			if !sotw && !asks.Covers(name, w.aliases) {
				delete(v.words, name)
			}
		}
	}
	l.shown, l.resumed = maps.Clone(versions), c.events
	for name, version := range versions {
		w, ok := v.present(name)
		if ok && w.plane != s.plane {
			c.fail("RECON-8", "the version of %s %s is another control plane's", k.name, name)
		}
		if gone := v.words[name]; !ok && gone.was != nil && !gone.silent && gone.was.ends.After(c.askedAt(s)) {
			w, ok = *gone.was, true // it has expired since, and the control plane hung
		}
		if !ok {
			c.fail("RECON-7", "the version of %s %s is sent, which is not there or not wanted", k.name, name)
		} else if w.version != version {
			c.fail("RECON-6", "the version of %s %s is %q, should be %q", k.name, name, version, w.version)
		}
	}
}

// overheard takes in what upstream says while no client wants a name of the type. The relay may keep it,
// since the server believes that it has delivered it (UP-9, UP-19).
func (c *Checker) overheard(k kind, s *relayStream, l *relayLane, resp *discovery.DeltaDiscoveryResponse) {
	v := c.known[k.name].byName
	c.events++
	for _, r := range resp.GetResources() {
		if r.GetResource() != nil {
			l.unasked = true
			v.set(r.GetName(), word{label: c.bodies[string(r.GetResource().GetValue())].label, version: r.GetVersion(),
				aliases: r.GetAliases(), at: c.events, plane: s.plane, ends: c.ends(r.GetTtl()), unasked: true, unsure: true})
		}
	}
	for _, name := range resp.GetRemovedResources() {
		v.remove(name, c.events)
	}
}
