package twin

// What the wildcard lends to names that were asked for and not answered (WILD-11, WILD-16).

// noteLapse notes since when the relay may have given a wildcard up.
func (c *Checker) noteLapse() {
	for _, k := range kinds {
		switch _, noted := c.lapsedAt[k.name]; {
		case !c.lapsed(k):
			delete(c.lapsedAt, k.name)
		case !noted:
			c.lapsedAt[k.name] = c.now
		}
	}
}

// outlived tells whether a client may be told that what the wildcard lent is gone, since
// it was given up: the name is asked for again, and only silence after that counts.
func (c *Checker) outlived(k kind, name string, i *Interest) bool {
	at, lapsed := c.lapsedAt[k.name]
	return lapsed && (!c.known[k.name].lends(name, i) || c.now.Sub(at) >= c.missing)
}

// lends: the wildcard's copy of a resource is what one of the names leads to, and of the
// resource nothing was said on the other lane.
func (k *knowledge) lends(name string, i *Interest) bool {
	w, ok := k.byWildcard.present(name)
	if own, spoken := k.byName.words[name]; spoken && !own.silent { // silence outweighs no copy (H-40)
		return false
	}
	for asked := range i.Names {
		if ok && answers(name, w.aliases, asked) && !k.byName.answered(asked) {
			return true
		}
	}
	return false
}

// forgetWildcard drops the wildcard's set, save what is lent.
func (c *Checker) forgetWildcard(k kind) {
	known, lent := c.known[k.name], newVoice()
	for name, w := range known.byWildcard.words {
		for _, i := range c.interests(k) {
			if known.lends(name, i) {
				lent.words[name] = w
			}
		}
	}
	known.byWildcard = lent
}

// orphan notes resources whose names are given up while an alias leads clients to them.
func (c *Checker) orphan(k kind, given []string) {
	for _, name := range given {
		w, ok := c.known[k.name].byName.present(name)
		for _, i := range c.interests(k) {
			if ok && i.Named(name, w.aliases) {
				c.orphans[k.name+" "+name] = true
			}
		}
	}
}
