package twin

import "maps"

// What the relay has on disk (RECON-19).

// onDisk is what a relay saves: what exists, and the names for which the relay has it.
type onDisk struct {
	known map[string]*knowledge
	names map[string]map[string]bool // by kind: true, or false if it may be
}

// saved notes what the relay has just saved. It may still have what no client has wanted for long
// enough.
func (c *Checker) saved() {
	s := &onDisk{map[string]*knowledge{}, map[string]map[string]bool{}}
	for _, k := range kinds {
		if c.openDisk && k.name == secrets {
			continue // never on disk in clear
		}
		names, sure := map[string]bool{}, map[string]bool{}
		for _, name := range Union(c.interests(k)) {
			sure[name] = true
		}
		for name, at := range c.wanted[k.name] {
			away := len(c.streams) == 0 // lingering stops while upstream is
			switch until := at.Add(c.linger); {
			case c.settings.Bounded(boundLinger):
				names[name] = false
			case c.now.Before(until) || away && c.proven.Before(until):
				sure[name] = true
			case c.isWanted(k, name) || away && c.lingers(k, name):
				names[name] = false
			}
		}
		maps.Copy(names, sure)
		known := c.known[k.name]
		byName := known.byName.kept(func(name string, w word) bool { return (&Interest{Names: sure}).Named(name, w.aliases) })
		byWildcard := newVoice()
		if _, held := names[wildcard]; held && known.byWildcard.complete {
			byWildcard = known.byWildcard.kept(func(string, word) bool { return names[wildcard] })
			byWildcard.complete, byWildcard.completed = true, known.byWildcard.completed
		}
		s.names[k.name], s.known[k.name] = names, &knowledge{byName, byWildcard, map[string]bool{}}
	}
	c.disk = s
}

// kept is what goes to disk: only what exists.
func (v *voice) kept(certain func(name string, w word) bool) *voice {
	k := newVoice()
	k.warm, k.settling = true, true
	for name, w := range v.words {
		if w.present {
			w.unsure, w.restored = w.unsure || !certain(name, w), true
			k.words[name] = w
		}
	}
	return k
}

// again is a copy for another life of the relay.
func (v *voice) again() *voice {
	a := *v
	a.words, a.limited = maps.Clone(v.words), map[string]bool{}
	return &a
}

// load notes that a relay has begun with what is on disk.
func (c *Checker) load() {
	c.loaded, c.loadedAt = map[string]map[string]bool{}, c.now
	if c.disk == nil {
		return
	}
	for _, k := range kinds {
		known := c.disk.known[k.name]
		if known == nil {
			continue
		}
		known.dropExpired(c.now)
		c.known[k.name].byName, c.known[k.name].byWildcard = known.byName.again(), known.byWildcard.again()
		for name := range c.disk.names[k.name] {
			c.wanted[k.name][name] = c.now // it lingers
		}
		if !c.uncertain {
			c.loaded[k.name] = c.disk.names[k.name]
		}
	}
}
