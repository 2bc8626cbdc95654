package twin

import (
	"slices"
	"strings"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// What the control plane says in its errors.
const (
	errorLater = "later"
	errorNone  = "no"
)

// Errors of the control plane reach every subscriber of the name (ERR-9).

// forwards notes which clients must be sent an error: those that ask for the name when it comes.
// Other rules say what a client gets that asks later.
func (c *Checker) forwards(k kind, e *discovery.ResourceError) {
	name := e.GetResourceName().GetName()
	c.erredAt[k.name+" "+name] = c.events
	for _, cl := range c.clients {
		t := cl.topics[k.name]
		if t == nil {
			continue
		}
		if cl.open && t.interest.Names[name] && t.failed[name] != e.GetErrorDetail().GetCode() {
			t.failures[name] = true // the same error again is sent once
		}
		if t.errors[name] != e.GetErrorDetail().GetMessage() {
			delete(t.errors, name) // what changes and changes back may be sent again (DOWN-DELTA-14)
		}
	}
}

// comesLate notes that a client is to be told of the errors of names that it asks for (H-27), if clients have
// wanted the name ever since: an error may be forgotten with the last client (UP-8).
func (c *Checker) comesLate(k kind, t *topic, names []string) {
	for _, s := range c.streams {
		for _, name := range names {
			wantedSince := t.interest.Names[name] && c.since[k.name][name] < c.erredAt[k.name+" "+name]
			if l := s.lanes[k.name]; l != nil && !l.wildcard && l.erred[name] && wantedSince {
				t.failures[name] = true
			}
		}
	}
}

// withdrawn notes that names are unsubscribed. If all clients gave one up since it was subscribed, the relay may have
// given it up, too, although some want it again. An error that came after that may be taken for one of what was given
// up, which says nothing (ERR-8).
func (c *Checker) withdrawn(k kind, l *relayLane, unsubscribed []string) {
	for _, name := range unsubscribed {
		if left, was := c.wanted[k.name][name]; !was || left.Before(l.names[name]) || c.left[k.name][name] > c.erredAt[k.name+" "+name] {
			continue
		}
		delete(l.erred, name)
		for _, cl := range c.clients {
			if t := cl.topics[k.name]; t != nil {
				delete(t.failures, name)
			}
		}
	}
}

// told judges an error that a client is sent of a name. again: it may be one that the client was told before, since
// the name awaited its answer, or what it led to goes.
func (c *Checker) told(who string, k kind, t *topic, e *discovery.ResourceError, again bool) {
	name, code, text := e.GetResourceName().GetName(), e.GetErrorDetail().GetCode(), e.GetErrorDetail().GetMessage()
	known, own := c.known[k.name], strings.HasPrefix(text, "xds-relay: ")
	switch {
	case !t.interest.Names[name]:
		c.fail("ERR-9", "%s is told of an error of %s, for which it has not asked", who, name)
	case own && code == notFound && (known.byName.matches(name, surely) || !known.byName.absent(name) && !known.byName.matches(name, unsurely) && !c.outlived(k, name, &t.interest)):
		c.fail("G4", "%s is told that there is no %s, and the control plane did not say so", who, name)
	case (text == errorLater || text == errorNone) && !known.erred[name]:
		c.fail("ERR-9", "%s is told of an error of %s, and upstream has sent none", who, name)
	case (text == errorLater || text == errorNone) && t.errors[name] == text && !again && !(t.sotw && code != notFound && known.byName.denied(name)):
		c.fail("ERR-9", "%s is told of the same error of %s again", who, name)
	}
	delete(t.failures, name)
	t.failed[name], t.errors[name] = code, text
}

// erred reports whether a client was told of an error of a resource, or of one of its aliases, before this response,
// or was to be told.
func (t *topic) erred(name string, aliases []string) bool {
	return slices.ContainsFunc(append(slices.Clone(aliases), name), func(asked string) bool {
		_, told := t.failed[asked]
		return told || t.failures[asked] || t.over[asked]
	})
}

// copied notes that a client is sent what names lead to, which says that their errors are over. An
// error that came after that content, and stands, has to be sent once more.
func (c *Checker) copied(k kind, t *topic, names []string, age int) {
	for _, name := range names {
		_, told := t.failed[name]
		concerned := told || t.failures[name]
		t.over[name] = t.over[name] || concerned
		t.recovers(name, nil)
		if concerned && age < c.erredAt[k.name+" "+name] {
			c.comesLate(k, t, []string{name})
		}
	}
}

// mayGo reports whether a response takes from a SotW client what a name leads to, or would, of a type that is not
// full-state (DOWN-SOTW-10). before is what the client had. It is told with an error that it is gone (MISS-6), which
// may be the one that it was told before.
func (t *topic) mayGo(k kind, before map[string]held, asked string) bool {
	leads := func(holds map[string]held) bool {
		for name, h := range holds {
			if answers(name, h.aliases, asked) {
				return true
			}
		}
		return false
	}
	return leads(before) && !(k.full && leads(t.holds))
}

// goes notes that a client was told that a name is gone. If upstream repeats that in an error, the client
// need not be sent it (DOWN-DELTA-14), nor an error that it was sent after upstream said so.
func (c *Checker) goes(k kind, t *topic, name string) {
	delete(t.failures, name)
	delete(t.errors, name)
	if _, told := t.failed[name]; !told || c.erredAt[k.name+" "+name] <= c.known[k.name].byName.words[name].at {
		t.failed[name] = notFound
	}
}

// recovers notes that errors are over, or do not concern a client any more.
func (t *topic) recovers(name string, aliases []string) {
	for _, name := range append(slices.Clone(aliases), name) {
		delete(t.failures, name)
		delete(t.failed, name)
		delete(t.errors, name)
	}
}

// overcome notes that upstream has said something else of a name: no client must be sent the error
// any more (ERR-8), and the same error may be sent again if upstream repeats it.
func (c *Checker) overcome(k kind, name string, aliases []string) {
	for _, cl := range c.clients {
		if t := cl.topics[k.name]; t != nil {
			for _, name := range append(slices.Clone(aliases), name) {
				delete(t.failures, name)
				delete(t.errors, name)
			}
		}
	}
}

// failures judges, when the relay has nothing left to do, whether errors have arrived.
func (c *Checker) failures(who string, k kind, cl *clientState, t *topic) {
	for name := range t.failures {
		if t.whole && !cl.sotw {
			continue // while an answer to the wildcard is owed, no error goes alone (DOWN-DELTA-13)
		}
		if cl.sotw && k.full && c.withheld(k, t) != "" {
			continue // they go with the set (MISS-6, DOWN-SOTW-7)
		}
		if v := c.known[k.name].byName; cl.sotw && k.full && v.denied(name) && v.answered(name) && c.known[k.name].leads(name, &t.interest) {
			continue // the set lists it for another name (MISS-6)
		}
		c.fail("ERR-9", "%s: upstream has an error for %s, and the client was not told", who, name)
	}
}
