package twin

import (
	"slices"
	"time"
)

// What the wildcard lends to names that were asked for and not answered (WILD-11, WILD-16).

// noteLapse notes since when the relay may have given a wildcard up.
func (c *Checker) noteLapse() {
	for _, k := range kinds {
		switch _, noted := c.lapsedAt[k.name]; {
		case !c.lapsed(k):
			if noted {
				c.known[k.name].restartSilence(c.now)
			}
			delete(c.lapsedAt, k.name)
		case !noted:
			c.lapsedAt[k.name] = c.now
			if left, was := c.wanted[k.name][wildcard]; was && left.Add(c.linger).Before(c.now) {
				c.lapsedAt[k.name] = left.Add(c.linger) // it lingered until then
			}
		}
	}
}

// restartSilence notes that a wildcard is wanted again that may have been given up meanwhile. What it had lent to silent
// names goes when its set is complete, and their silence counts from when it was given up (WILD-11).
func (k *knowledge) restartSilence(now time.Time) {
	for name, w := range k.byName.words {
		if w.silent && k.byWildcard.matched(name) {
			w.unsure, w.silentFrom = true, now
			k.byName.words[name] = w
		}
	}
}

// outlived reports whether a client may be told that what the wildcard lent is gone. The wildcard was given
// up; then the name is asked for again, and only silence after that counts.
func (c *Checker) outlived(k kind, name string, i *Interest) bool {
	at, lapsed := c.lapsedAt[k.name]
	return lapsed && (!c.known[k.name].lends(name, i) || c.now.Sub(at) >= c.missing)
}

// askedAlone reports whether a silent name was asked for since the wildcard was given up that has left it a
// copy. Then what upstream says of it is its word on the name itself (WILD-11).
func (c *Checker) askedAlone(k kind, l *relayLane, name string) bool {
	at, lapsed := c.lapsedAt[k.name]
	return lapsed && !l.names[name].Before(at) && c.known[k.name].byWildcard.matched(name)
}

// lends reports whether one of the names leads to the wildcard's copy of a resource, of which nothing was
// said on the other lane.
func (k *knowledge) lends(name string, i *Interest) bool {
	return k.lendsBeside(k.byName, name, i)
}

// lendsBeside is the same with what was said on the other lane.
func (k *knowledge) lendsBeside(byName *voice, name string, i *Interest) bool {
	w, ok := k.byWildcard.present(name)
	if own, spoken := byName.words[name]; spoken && !own.silent { // silence outweighs no copy (H-40)
		return false
	}
	for asked := range i.Names {
		if ok && answers(name, w.aliases, asked) && !byName.answered(asked) {
			return true
		}
	}
	return false
}

// borrows reports whether one of the names leads to the wildcard's copy of a resource, or may: upstream has
// not answered that name (WILD-16), or the relay may have forgotten the answer (UP-7).
func (k *knowledge) borrows(name string, i *Interest) bool {
	w := k.byWildcard.words[name]
	return slices.ContainsFunc(append(slices.Clone(w.aliases), name), func(asked string) bool {
		return i.Names[asked] && (!k.byName.answered(asked) || k.byName.words[asked].unsure)
	})
}

// wildcardAsked is the event with which a wildcard that may have been given up was asked for again. If one stream
// has carried it since before (SotW cannot tell), it was not given up the last time, but maybe an earlier one.
func (c *Checker) wildcardAsked(k kind) int {
	again := c.since[k.name][wildcard]
	for _, s := range c.streams {
		if l := s.lanes[k.name]; l != nil && l.wildcard && !s.sotw && len(l.names) > 0 && l.asked < again {
			return c.askedBefore[k.name]
		}
	}
	return again
}

// leftOver is the copy of a resource that a wildcard that was given up has left to names, or may have left.
// It stays until the set is complete again. again is the event with which the wildcard was asked for again;
// lapsed: it was not yet.
func (k *knowledge) leftOver(name string, again int, lapsed bool) (word, bool) {
	w, ok := k.byWildcard.present(name)
	return w, ok && (lapsed || (w.at < again || w.or != "") && !(k.byWildcard.complete && k.byWildcard.completed >= again))
}

// lendsByAlias reports whether the wildcard lends a resource to an alias without an answer, whatever is known of its name.
func (k *knowledge) lendsByAlias(name string, i *Interest) bool {
	w, _ := k.byWildcard.present(name)
	return slices.ContainsFunc(w.aliases, func(alias string) bool { return i.Names[alias] && !k.byName.answered(alias) })
}

// outweighsAll notes that a wildcard may have been given up while upstream's word on the names of members outweighed these:
// they were left to nobody then, though that word is forgotten later (WILD-11).
func (k *knowledge) outweighsAll() {
	for name, w := range k.byWildcard.words {
		if own, said := k.byName.words[name]; said && !own.silent {
			w.unsure = true
			k.byWildcard.words[name] = w
		}
	}
}

// outweighs notes that upstream has said on a lane that a name is gone. Its word on the name itself takes all that a
// wildcard that was given up has left of it (WILD-11), and the relay may not have given the wildcard up.
func (c *Checker) outweighs(k kind, l *relayLane, name string) {
	known := c.known[k.name]
	if left, is := known.leftOver(name, c.wildcardAsked(k), c.lapsed(k)); is && !l.wildcard {
		left.unsure = true
		known.byWildcard.words[name] = left
	}
}

// forgetWildcard drops the wildcard's set, except what is lent, or may be.
func (c *Checker) forgetWildcard(k kind) {
	known, lent := c.known[k.name], newVoice()
	interests, remembered := c.interests(k), c.remembered(k)
	for name, w := range known.byWildcard.words {
		lends := func(i *Interest) bool { return known.lends(name, i) }
		mayLend := func(i *Interest) bool { return known.lendsBeside(remembered, name, i) }
		switch {
		case slices.ContainsFunc(interests, lends):
			lent.words[name] = w
		case slices.ContainsFunc(interests, mayLend):
			w.unsure = true
			lent.words[name] = w
		}
	}
	lent.warm = known.byWildcard.warm && len(lent.words) > 0 // a restored copy stays restored (WILD-11)
	known.byWildcard = lent
}

// remembered is what the relay surely knows by name: what upstream has said since clients have wanted it
// without a break.
func (c *Checker) remembered(k kind) *voice {
	names := map[string]bool{}
	for _, name := range Union(c.interests(k)) {
		names[name] = name != wildcard
	}
	v := newVoice()
	for name, w := range c.known[k.name].byName.words {
		if c.kept(k, names, name, w) {
			v.words[name] = w
		}
	}
	return v
}

// orphan notes resources whose names are given up while an alias leads clients to them.
func (c *Checker) orphan(k kind, givenUp []string) {
	for _, name := range givenUp {
		w, ok := c.known[k.name].byName.present(name)
		for _, i := range c.interests(k) {
			if ok && i.Named(name, w.aliases) {
				c.orphans[k.name+" "+name] = true
			}
		}
	}
}

// aliases are those of a content, as the control plane has said them.
func (c *Checker) aliases(k kind, r content) []string {
	for _, v := range c.known[k.name].voices() {
		if w, ok := v.present(r.name); ok && w.label == r.label {
			return w.aliases
		} else if ok && w.or == r.label {
			return w.orAliases
		}
	}
	return nil
}
