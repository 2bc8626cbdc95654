package twin

import (
	"slices"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// Errors of the control plane's, which reach every subscriber of the name (ERR-9).

// forwards notes of whom an error is to be told: of those who ask for the name when it
// comes. What the name leads to by then, and who asks later, other rules say.
func (c *Checker) forwards(k kind, e *discovery.ResourceError) {
	name := e.GetResourceName().GetName()
	c.erredAt[k.name+" "+name] = c.events
	for _, cl := range c.clients {
		if t := cl.topics[k.name]; cl.open && t != nil && t.interest.Names[name] && t.failed[name] != e.GetErrorDetail().GetCode() {
			t.failures[name] = true // the same once more is told once
		}
	}
}

// told notes that a client was sent an error.
func (t *topic) told(e *discovery.ResourceError) {
	name := e.GetResourceName().GetName()
	delete(t.failures, name)
	t.failed[name] = e.GetErrorDetail().GetCode()
}

// goes notes that a client was told that a name is gone: that upstream says so once more, in
// an error, is nothing new to it (DOWN-DELTA-14). Nor is an error that it was told of since
// upstream said that.
func (c *Checker) goes(k kind, t *topic, name string) {
	delete(t.failures, name)
	if _, told := t.failed[name]; !told || c.erredAt[k.name+" "+name] <= c.known[k.name].byName.words[name].at {
		t.failed[name] = notFound
	}
}

// recovers notes that an error is over, or does not concern a client any more.
func (t *topic) recovers(name string, aliases []string) {
	for _, name := range append(slices.Clone(aliases), name) {
		delete(t.failures, name)
		delete(t.failed, name)
	}
}

// overcome notes that upstream has said something else of a name: nobody has to hear of
// the error any more (ERR-8).
func (c *Checker) overcome(k kind, name string, aliases []string) {
	for _, cl := range c.clients {
		if t := cl.topics[k.name]; t != nil {
			for _, name := range append(slices.Clone(aliases), name) {
				delete(t.failures, name)
			}
		}
	}
}

// failures judges whether errors have arrived, when nothing is owed to anybody.
func (c *Checker) failures(who string, k kind, cl *clientState, t *topic) {
	for name := range t.failures {
		if t.whole && !cl.sotw {
			continue // while an answer to the wildcard is owed, no error goes alone (DOWN-DELTA-13)
		}
		if cl.sotw && k.full && c.withheld(k, t) != "" {
			continue // they go with the set (MISS-6, DOWN-SOTW-7)
		}
		c.fail("ERR-9", "%s: upstream has an error for %s, and the client was not told", who, name)
	}
}
