package twin

import (
	"maps"
	"slices"
	"time"
)

// In what order one client is sent changes of several types (ORDER-2). What has piled up is sent in
// one go: the relay hears nothing meanwhile, and no time passes.

// going is one go, as far as the client has received it.
type going struct {
	at       time.Time
	round    int // what is sent in another round is another go
	added    int // the rank of the latest type of which something was added
	removed  bool
	answered bool // there were answers among it, not only changes
}

// ranks are the types in the order of what is added.
var ranks = func() map[string]int {
	r := map[string]int{}
	for i, name := range []string{secrets, "CDS", "EDS", "LDS", "FOO"} {
		r[name] = i + 1
	}
	return r
}()

// heard notes that the relay was sent something: what it sends from now on is another go.
func (c *Checker) heard() { c.round++ }

// ordered judges what a response adds and removes, after what came before it in one go. An answer
// is sent when it is asked for, and what follows it may be old.
func (c *Checker) ordered(who string, cl *clientState, k kind, adds, removes, answer bool) {
	g := &cl.going
	if g.round != c.round || !g.at.Equal(c.now) {
		*g = going{at: c.now, round: c.round}
	}
	if answer {
		g.answered = true
		return
	}
	rank := ranks[k.name]
	switch {
	case !adds:
	case g.removed && k.name == "LDS":
		c.fail("ORDER-2", "%s: a change goes after clusters or endpoints that were taken away", who)
	case rank < g.added && !g.answered:
		c.fail("ORDER-2", "%s: additions go after those of a later type", who)
	}
	if adds {
		g.added = max(g.added, rank)
	}
	if removes && !adds && slices.Contains([]string{"CDS", "EDS"}, k.name) {
		lds := cl.topics["LDS"]
		g.removed = lds == nil || len(lds.unacked) == 0 // else its wait may have run out
	}
}

// turns reports whether listeners wait for a client, which may refer to clusters that go (ORDER-2).
func (c *Checker) turns(cl *clientState) bool {
	k, t := kindOf("LDS"), cl.topics["LDS"]
	if t == nil {
		return false
	}
	known := c.known[k.name]
	answers := func(name string) bool { return known.byName.answered(name) }
	return len(t.unacked) > 0 || t.whole && known.byWildcard.complete ||
		slices.ContainsFunc(slices.Collect(maps.Keys(t.asked)), answers) || c.outdated(cl, k, t)
}

// outdated reports whether a client has something that has gone or changed, or lacks something.
func (c *Checker) outdated(cl *clientState, k kind, t *topic) bool {
	for name, h := range t.holds {
		if !c.known[k.name].says(name, h.label) {
			return true
		}
	}
	for _, v := range c.known[k.name].voices() {
		for name, w := range v.words {
			if w.present && c.served(k, t, v, name, w) && !c.has(cl, k, t, name, w) {
				return true
			}
		}
	}
	return false
}
