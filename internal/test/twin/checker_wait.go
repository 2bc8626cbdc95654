package twin

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/xds-relay/xds-relay/cache"
)

// When all is quiet, every name that a client has asked for has an answer, or there is one of the
// reasons below, which a rule allows. A run prints how often each was met: a reason that is met too
// often hides something from the judge.

// reason is why an interest is not served, with the rule that allows it.
type reason string

const (
	spared     reason = "DOWN-DELTA-8: the client came with what its name leads to, and that has not changed"
	failing    reason = "ERR-8: upstream has answered with an error, and the client was told"
	doubted    reason = "MISS-4: a stream was silent that has carried nothing of the type, and the client came with the name"
	unspeaking reason = "TRANSLATE-7: SotW has no word for what does not exist"
	unsaid     reason = "RECON-11: the server is silent about what it believes known"
	put        reason = "RECON-19: what the client came with stays while what is here is from disk"
	countless  reason = "UP-9: so much was shown unasked that every name may have been"
	untold     reason = "DOWN-SOTW-10: SotW does not tell that a resource of this type is gone"
	withholds  reason = "DOWN-SOTW-7: the set waits for a name that is not resolved"
)

// allReasons are in the order in which they are printed.
var allReasons = []reason{spared, failing, doubted, unspeaking, unsaid, countless, put, untold, withholds}

// waits judges what a client still waits for when all is quiet, and counts the reasons.
func (c *Checker) waits(who string, k kind, cl *clientState, t *topic, world World) {
	for name := range t.asked {
		if name == wildcard || !t.interest.Names[name] {
			continue
		}
		why := c.why(k, cl, t, name, world)
		if why == "" {
			c.fail("MISS-3", "%s: all is quiet, and %s has had no answer, for no reason", who, name)
			return
		}
		c.reasons[why]++
	}
}

// why is the reason for which a name has had no answer, or "".
func (c *Checker) why(k kind, cl *clientState, t *topic, name string, world World) reason {
	known := c.known[k.name]
	exists := false
	for other, r := range world[k.name] {
		if answers(other, r.Aliases, name) {
			exists = true
			if t.holds[other].label == r.Label {
				return spared
			}
		}
	}
	for other, h := range t.holds {
		if answers(other, h.aliases, name) {
			return spared
		}
	}
	w := known.byName.words[name]
	switch {
	case known.erred[name] && !exists:
		return failing
	case len(t.brought) > 0 && w.silent && w.unvouched:
		return doubted
	case c.forgetful && !exists:
		return unspeaking
	case c.crowded(k) && !exists:
		return countless
	case (c.ignores || c.remembers || c.mute(k)) && !exists:
		return unsaid
	case len(t.brought) > 0 && (known.byName.warm || known.byWildcard.warm):
		return put
	case cl.sotw && !k.full && !exists:
		return untold
	case cl.sotw && k.full && c.withheld(k, t) != "":
		return withholds
	}
	return ""
}

// withheld is a name for which a full set waits, since it is asked for and not resolved, or "".
func (c *Checker) withheld(k kind, t *topic) string {
	if t.interest.Wildcard && !c.known[k.name].byWildcard.complete {
		return wildcard
	}
	for name := range t.holds { // a fault may hide it, and a set without it would take it away (ERR-10)
		if t.interest.Wildcard && (c.mayDoubt(k.name, true, name) || c.hides(k, true)) && !c.known[k.name].byWildcard.words[name].present && !c.known[k.name].leads(name, &t.interest) {
			return name
		}
	}
	for name := range t.interest.Names {
		known := c.known[k.name]
		w, led := known.byName.words[name], known.byName.matches(name, surely)
		perhaps := w.unsure && !w.present || known.byName.matched(name) // what it leads to may have gone (UP-8)
		if !led && (perhaps || !known.byName.answered(name)) && (!w.silent || w.unsure) && !known.byWildcard.matches(name, surely) {
			return name
		}
	}
	return ""
}

// reasons counts why interests were not served, over all games of a run.
type reasons struct {
	mu  sync.Mutex
	met map[reason]int
}

func (r *reasons) add(c *Checker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.met == nil {
		r.met = map[reason]int{}
	}
	for why, n := range c.reasons {
		r.met[why] += n
	}
}

// String lists every reason, met or not.
func (r *reasons) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := make([]string, 0, len(allReasons))
	for _, why := range allReasons {
		rule, what, _ := strings.Cut(string(why), ": ")
		lines = append(lines, fmt.Sprintf("unserved       %-13s met %d times: %s", rule, r.met[why], what))
	}
	return strings.Join(lines, "\n")
}

// lacks judges that a full set has all that the relay knows and the client asks for, since the client
// drops what it does not list (DOWN-SOTW-6).
func (c *Checker) lacks(who string, k kind, t *topic, listed map[string]bool) {
	known := c.known[k.name]
	if len(t.brought) > 0 && (known.byName.warm || known.byWildcard.warm || known.byWildcard.settling) {
		return // RECON-19
	}
	for _, v := range known.voices() {
		for name, w := range v.words {
			if w.present && !listed[name] && c.served(k, t, v, name, w) {
				c.fail("DOWN-SOTW-6", "%s wants %s, and its set lacks %s=%s", who, t.interest.text(), name, w.label)
			}
		}
	}
}

// served reports whether a client must have a resource that one of the two voices has spoken of, and the
// relay must still have it.
func (c *Checker) served(k kind, t *topic, v *voice, name string, w word) bool {
	if v == c.known[k.name].byName {
		return c.kept(k, t.interest.Names, name, w)
	}
	if cache.TypeURL(k.url).ReplacesAtOnce() && c.grows(k) {
		return false // another control plane's set comes with the removals that end it (ORDER-2)
	}
	return v.complete && c.since[k.name][wildcard] < v.completed && t.interest.Wildcard &&
		!t.interest.Named(name, w.aliases) && c.kept(k, map[string]bool{wildcard: true}, name, w)
}

// upToDate judges a moment at which the relay has nothing left to do: a client that keeps up has all
// that upstream has said (ORDER-1). What refers to clusters may wait for them (ORDER-3); nothing else
// waits for another type.
func (c *Checker) upToDate(id int, deaf bool) {
	cl := c.clients[id]
	if cl == nil || !cl.open || deaf || !cl.keepsUp() {
		return
	}
	for _, k := range kinds {
		t := cl.topics[k.name]
		if t == nil || t.interest.fresh || t.opening || t.whole || len(t.brought) > 0 || cl.sotw && k.full && c.withheld(k, t) != "" {
			continue
		}
		c.dated(id, k, cl, t)
		known := c.known[k.name]
		for _, v := range known.voices() {
			for name, w := range v.words {
				if w.present && !v.warm && c.served(k, t, v, name, w) && !c.has(cl, k, t, name, w) {
					c.fail("ORDER-1", "c%d %s keeps up, the relay knows %s=%s, and the client holds %q", id, k.name, name, w.label, t.holds[name].label)
					return
				}
			}
		}
	}
}

// keepsUp reports whether the client owes no ACK of any type, and what refers to clusters waits for none.
func (cl *clientState) keepsUp() bool {
	for _, t := range cl.topics {
		if len(t.unacked) > 0 {
			return false
		}
	}
	return len(cl.hold.changing) == 0 && cl.hold.returned.IsZero() && !slices.ContainsFunc(kinds, func(k kind) bool {
		t := cl.topics[k.name]
		return t != nil && (t.whole || t.opening)
	})
}
