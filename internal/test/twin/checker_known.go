package twin

import (
	"fmt"
	"slices"
)

// What the relay knows, and clients must have or may have come with.

// Known judges a moment at which the relay has nothing left to do and the clients have acknowledged
// everything: they have what the relay knows, with or without a control plane (G8).
func (c *Checker) Known() {
	c.silence()
	c.settled()
	for id, cl := range c.clients {
		for _, k := range kinds {
			t := cl.topics[k.name]
			if !cl.open || t == nil || t.interest.fresh || t.opening || cl.sotw && k.full {
				continue // a full set may wait for what is not known (DOWN-SOTW-7)
			}
			if k.name == "LDS" && c.awaitsClusters(cl) {
				continue
			}
			c.failures(fmt.Sprintf("c%d %s", id, k.name), k, cl, t)
			for _, v := range c.known[k.name].voices() {
				for name, w := range v.words {
					served := c.served(k, t, v, name, w)
					warm := v.warm || w.restored && v == c.known[k.name].byName || t.interest.Wildcard && (c.known[k.name].byWildcard.settling || c.doubts[k.name][true] != nil)
					kept := warm && (t.brought[name] || cl.sotw && len(t.brought) > 0)
					if w.present && served && !kept && !c.has(cl, k, t, name, w) {
						c.fail("G8", "c%d %s: the relay knows %s=%s, the client holds %q", id, k.name, name, w.label, t.holds[name].label)
					}
					if w.present && served && !kept {
						c.unlimited(id, k, cl, t, v, name)
					}
				}
			}
		}
	}
}

// kept reports whether the relay must have a resource still: upstream sent it because of one of the names,
// and clients have wanted that name ever since.
func (c *Checker) kept(k kind, names map[string]bool, name string, w word) bool {
	if w.unsure {
		return false
	}
	if names[name] && c.since[k.name][name] < w.at || names[wildcard] && c.since[k.name][wildcard] < w.at {
		return true
	}
	return slices.ContainsFunc(w.aliases, func(alias string) bool { return names[alias] && c.since[k.name][alias] < w.at })
}

// unvouched reports whether a client came with a name of which only the silence of a stream says that it is
// gone, and that stream has carried nothing of the type (MISS-4).
func (c *Checker) unvouched(k kind, t *topic, name string) bool {
	return t.brought[name] && c.known[k.name].byName.muted(name)
}

// meets notes that the relay has a copy of a resource that clients may have come with.
func (c *Checker) meets(k kind, name string) {
	for _, cl := range c.clients {
		if t := cl.topics[k.name]; t != nil && t.brought[name] {
			t.met[name] = true
			c.leads(k, t, name)
		}
	}
}

// leads notes whether what a client came with is what one of its names leads to. Then it is judged, whatever
// the other names lead to later.
func (c *Checker) leads(k kind, t *topic, name string) {
	known := c.known[k.name]
	t.led[name] = t.led[name] || known.leads(name, &t.interest) && known.spoken(name, t.holds[name].label)
}

// met reports whether the relay has had a copy since the client came, or upstream has said that the
// wildcard's set lacks it. Then the client may be told that it is gone.
func (c *Checker) met(k kind, t *topic, name string) bool {
	w, said := c.known[k.name].byWildcard.words[name]
	return t.met[name] || said && !w.present
}
