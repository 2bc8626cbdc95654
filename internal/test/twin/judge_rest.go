package twin

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// What is left when all is quiet.

// Finish judges that every client holds what upstream has for it (G3): everything is said and read, and all timers
// have run out.
func (c *Checker) Finish(world World) {
	c.conclude()
	for _, k := range kinds {
		for id, cl := range c.clients {
			if t := cl.topics[k.name]; cl.open && t != nil && !t.interest.Empty() {
				c.atRest(fmt.Sprintf("c%d %s", id, k.name), k, cl, t, world)
			}
		}
	}
}

// atRest judges one client and type.
func (c *Checker) atRest(who string, k kind, cl *clientState, t *topic, world World) {
	if cl.sotw && k.full && c.waits(k, t, world) {
		c.excuse(withheld)
		return
	}
	if t.interest.Wildcard && !t.answered {
		c.fail("G3", "%s has had no answer to its wildcard", who)
	}
	view, holds := world.View(k, &t.interest), map[string]string{}
	for name, h := range t.holds {
		label, exists := view[name]
		over := !h.ends.IsZero() && !h.ends.After(c.now)
		unaware := exists && (t.brought[name] || t.rejected)
		switch {
		case over && !(unaware && c.excuse(limited)):
		case !exists && c.stays(k, t, name, world):
		case exists && label != h.label && c.stands(k, t, name):
			delete(view, name)
		default:
			holds[name] = h.label
		}
	}
	for name, label := range view {
		if c.large(cl, k, name, label) {
			c.excuse(tooLarge)
			delete(view, name)
			delete(holds, name)
		}
	}
	if !maps.Equal(view, holds) {
		c.fail("G3", "%s wants %s, should hold %v, holds %v", who, t.interest.text(), view, holds)
	}
}

// waits reports whether a full-state set may be withheld: a name of the client's leads to nothing, and upstream does
// not say so.
func (c *Checker) waits(k kind, t *topic, world World) bool {
	for name := range t.interest.Names {
		leads := slices.ContainsFunc(leading(name), func(other string) bool {
			r, is := world[k.name][other]
			return is && t.interest.answeredBy(other, r.Aliases, name)
		})
		open := c.lanes[k.name][false].words[name].erred || c.isMute(k) || c.countsAsShown(k)
		if open && !leads {
			return true
		}
	}
	return false
}

// countsAsShown reports whether a stream may have sent more that nobody asked for than the relay remembers: its silence
// says nothing of any name (UP-19).
func (c *Checker) countsAsShown(k kind) bool {
	return k.full && (c.settings.Bounded("gone") || c.settings.Bounded("unasked"))
}

// stays reports whether a client may hold still what upstream does not have for it.
func (c *Checker) stays(k kind, t *topic, name string, world World) bool {
	switch {
	case t.brought[name] && c.waits(k, t, world):
		return c.excuse(withheld)
	case c.speechless(k):
		return c.excuse(unspeaking)
	case t.sotw && !k.full:
		return c.excuse(untold)
	}
	return c.stands(k, t, name) || c.isMute(k) && c.excuse(mute)
}

// stands reports whether upstream has not taken back what it has said of a resource, or a fault or an error is in the way.
func (c *Checker) stands(k kind, t *topic, name string) bool {
	for _, s := range c.streams {
		l := s.lanes[k.name]
		if l == nil {
			continue
		}
		of := c.lanes[k.name][l.wildcard]
		w := of.words[name]
		stands := w.at >= l.begun || l.shown[name] != "" || c.speechless(k)
		tooLarge := c.settings.Large && isLarge(w.label)
		same := w.label == t.holds[name].label || tooLarge
		if w.there() && same && stands && t.interest.Covers(name, w.aliases) {
			return c.excuse(standing)
		}
		if l.faulty[name] {
			return c.excuse(faulted)
		}
		if slices.ContainsFunc(append(slices.Clone(t.holds[name].aliases), name), func(asked string) bool { return of.words[asked].erred }) {
			return c.excuse(inError)
		}
	}
	return false
}

// speechless reports whether upstream has no word for what is gone of a type (TRANSLATE-7).
func (c *Checker) speechless(k kind) bool { return c.settings.SotW != "" && !k.full }

// isMute reports whether the stream that asks for a type by name has carried nothing of the type.
func (c *Checker) isMute(k kind) bool {
	for _, s := range c.streams {
		if l := s.lanes[k.name]; l != nil && !l.wildcard && !l.heard {
			return true
		}
	}
	return false
}

// isLarge reports whether the content that a label stands for is too large for a response, in games that have such.
func isLarge(label string) bool {
	n, err := strconv.Atoi(label[min(1, len(label)):])
	return err == nil && n%3 == 0
}

// large reports whether a resource is too large for a client, or what upstream said of it last. A full-state set goes
// to SotW clients as it is.
func (c *Checker) large(cl *clientState, k kind, name, label string) bool {
	if !c.settings.Large || cl.sotw && k.full {
		return false
	}
	return isLarge(label) || slices.ContainsFunc([]bool{false, true}, func(byWildcard bool) bool {
		w := c.lanes[k.name][byWildcard].words[name]
		return w.there() && isLarge(w.label)
	})
}
