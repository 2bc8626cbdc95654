package twin

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// What is left when all is quiet.

// mute reports whether the stream that asks for a type by name has carried nothing of the type. Then
// what an earlier stream brought stays, though this one was shown no version of it (RECON-12).
func (c *Checker) mute(k kind) bool {
	for _, s := range c.streams {
		if l := s.lanes[k.name]; l != nil && !l.wildcard && !l.heard {
			return true
		}
	}
	return false
}

// stays reports whether a resource may be an earlier stream's that stays because this one is mute.
func (c *Checker) stays(k kind, w word) bool { return (w.unsure || c.second) && c.mute(k) }

// crowded reports whether a server may have shown more resources unasked than there is room for, and
// more than the relay remembers by name. Then it may have shown any name, and its silence about one
// says nothing (UP-9, UP-19).
func (c *Checker) crowded(k kind) bool {
	return k.full && c.remembers && c.settings.Bounded(boundUnasked) && c.settings.Bounded(boundGone)
}

// overlooked reports whether a server that ignores versions was shown one of a resource, has not spoken
// of it since, and has given no sign that it ignores versions. The relay cannot know whether the
// resource is still there (RECON-11, RECON-13).
func (c *Checker) overlooked(k kind, name string) bool {
	if !c.ignores {
		return false
	}
	for _, s := range c.streams {
		l := s.lanes[k.name]
		if l == nil || l.sign {
			continue
		}
		if w, ok := c.known[k.name].voice(l.wildcard).present(name); ok && l.shown[name] != "" && w.at <= l.resumed {
			return true
		}
	}
	return false
}

// wants are the kinds of which somebody wants something.
func (c *Checker) wants() (all []string) {
	for _, k := range kinds {
		if len(Union(c.interests(k))) > 0 {
			all = append(all, k.name)
		}
	}
	return all
}

// Finish judges what is left when all is quiet: everything is said and read, and
// all timers have run out.
func (c *Checker) Finish(world World) {
	c.silence()
	for _, k := range kinds {
		for id, cl := range c.clients {
			if t := cl.topics[k.name]; cl.open && t != nil && !t.interest.fresh {
				c.finishTopic(fmt.Sprintf("c%d %s", id, k.name), k, cl, t, world)
			}
		}
		subscribed := []string{}
		for _, s := range c.streams {
			if _, hung := c.hungSince[s.plane]; hung {
				continue // it may not have heard that it was left
			}
			if l := s.lanes[k.name]; l != nil {
				for _, name := range slices.Sorted(maps.Keys(l.names)) {
					if !l.unasked || c.isWanted(k, name) {
						subscribed = append(subscribed, name)
					}
				}
				for nonce := range l.pending {
					c.fail("UP-4", "%s %s has had no verdict", k.name, nonce)
				}
			}
		}
		slices.Sort(subscribed)
		union := Union(c.interests(k))
		subscribed = slices.DeleteFunc(subscribed, func(name string) bool {
			// SotW cannot give the wildcard up; and a client whose stream the relay has ended
			// just now leaves names that linger (ERR-7, UP-7).
			return !slices.Contains(union, name) && (c.forgetful && name == wildcard || c.isWanted(k, name))
		})
		if !slices.Equal(union, subscribed) {
			c.fail("G10", "%s: the clients want %q, upstream is subscribed to %q", k.name, union, subscribed)
		}
	}
}

// finishTopic: a client holds what the twin says (G3).
func (c *Checker) finishTopic(who string, k kind, cl *clientState, t *topic, world World) {
	view, holds := world.View(k, &t.interest), map[string]string{}
	// An error is no answer, and SotW has no other for what does not exist (ERR-8).
	unresolved := func(name string) bool {
		if c.crowded(k) && world[k.name][name].Label == "" {
			return true
		}
		w, known := c.known[k.name].byWildcard.present(name)
		spared := known && w.unsure && t.interest.Wildcard // by a sweep, because of the error (RECON-12)
		return (c.forgetful || c.remembers || c.ignores || spared) && c.known[k.name].erred[name] && world[k.name][name].Label == ""
	}
	waits := slices.ContainsFunc(slices.Collect(maps.Keys(t.interest.Names)), unresolved)
	// Nothing vouches for the silence about a name that the client may hold (MISS-4).
	doubted := func(name string) bool {
		return t.interest.Names[name] && (c.known[k.name].byName.muted(name) || c.mute(k) && !c.known[k.name].byName.matches(name, surely))
	}
	doubt := len(t.brought) > 0 && slices.ContainsFunc(slices.Collect(maps.Keys(t.interest.Names)), doubted)
	if (waits || doubt) && cl.sotw && k.full {
		return // its set is withheld (DOWN-SOTW-7)
	}
	// What is from disk, and another control plane is silent about that was shown no version
	// of it, may lead to what a client came with by another name (RECON-19).
	waits = waits || slices.ContainsFunc(slices.Collect(maps.Keys(t.interest.Names)), func(name string) bool {
		return c.known[k.name].byName.matches(name, func(w word) bool { return c.stays(k, w) })
	})
	for name, h := range t.holds {
		if c.forgetful && !k.full && t.interest.Named(name, h.aliases) && !t.interest.Named(name, world[k.name][name].Aliases) {
			delete(view, name) // SotW cannot say that it has lost the alias (TRANSLATE-7)
			continue
		}
		if w, known := c.known[k.name].byName.present(name); known && c.stays(k, w) || !known && c.remembers && c.mute(k) {
			delete(view, name)
			continue
		}
		if c.overlooked(k, name) || c.sparedByFault(k, name) && !t.interest.Names[name] && t.interest.Named(name, h.aliases) {
			delete(view, name)
			continue
		}
		_, exists := view[name]
		lost := t.interest.Named(name, h.aliases) && !t.interest.Named(name, world[k.name][name].Aliases) // it is left to the wildcard
		if c.hasCrossed(k, name) && (!exists || lost) {
			delete(view, name)
			continue
		}
		if t.brought[name] && (doubted(name) || slices.ContainsFunc(h.aliases, doubted)) {
			continue
		}
		if _, exists := view[name]; exists || !unresolved(name) && !(t.brought[name] && waits) && (!cl.sotw && !c.forgetful || k.full) {
			holds[name] = h.label // SotW cannot say that others are gone (DOWN-SOTW-10)
		}
	}
	c.withoutLarge(cl, k, t, view, holds)
	if t.whole && !t.answered {
		c.fail("DOWN-DELTA-13", "%s has had no answer to its wildcard", who)
	}
	for name := range holds {
		if _, exists := view[name]; !exists && !t.interest.Names[name] && (t.halves[name] || c.orphans[k.name+" "+name] || c.refusedBy(k, t, name)) {
			c.fail("NAME-5", "%s wants %s, and holds %s still, which it has by an alias", who, t.interest.text(), name)
			return
		}
	}
	if !maps.Equal(view, holds) {
		c.fail("G3", "%s wants %s, should hold %v, holds %v", who, t.interest.text(), view, holds)
	}
	for name, asked := range t.asked {
		if _, exists := view[name]; asked && exists && t.interest.Names[name] && !cl.sotw {
			c.fail("DOWN-DELTA-7", "%s has had no answer for %s", who, name)
		}
	}
	c.failures(who, k, cl, t)
	c.waits(who, k, cl, t, world)
	for name := range cl.warm {
		if t.brought[name] && doubted(name) || c.forgetful && c.inDoubt(k, name, t, false) {
			continue // the relay has nothing to say of it
		}
		if i := &t.interest; k.name == "EDS" && !unresolved(name) && (i.Names[name] || i.Wildcard && !cl.sotw) && (!cl.sotw && i.Names[name] || world[k.name][name].Label != "") {
			c.fail("ORDER-4", "%s: %s was not told after its cluster", who, name)
		}
	}
}

// refusedBy: upstream has answered with an error to every alias that led a client to a
// resource.
func (c *Checker) refusedBy(k kind, t *topic, name string) bool {
	for asked := range t.interest.Names {
		if answers(name, t.holds[name].aliases, asked) && !c.known[k.name].erred[asked] {
			return false
		}
	}
	return t.interest.leading(name, t.holds[name].aliases) > 0
}

// sinceLastStream is for how long none has been opened.
func (c *Checker) sinceLastStream() time.Duration {
	var latest time.Time
	for _, s := range c.streams {
		if s.opened.After(latest) {
			latest = s.opened
		}
	}
	return c.now.Sub(latest)
}

func (i *Interest) text() string {
	names := slices.Sorted(maps.Keys(i.Names))
	if i.Wildcard {
		names = append(names, wildcard)
	}
	return fmt.Sprintf("%q", names)
}
