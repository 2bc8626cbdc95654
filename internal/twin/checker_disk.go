package twin

import "maps"

// What the relay has on disk (RECON-19).

// onDisk is what a relay saves: what exists, and because of what names it is held.
type onDisk struct {
	known map[string]*knowledge
	names map[string]map[string]bool // by kind
}

// saved notes what the relay has just saved.
func (c *Checker) saved() {
	s := &onDisk{map[string]*knowledge{}, map[string]map[string]bool{}}
	for _, k := range kinds {
		known := c.known[k.name]
		s.known[k.name] = &knowledge{known.byName.kept(), newVoice(), map[string]bool{}}
		if known.byWildcard.complete {
			s.known[k.name].byWildcard = known.byWildcard.kept()
			s.known[k.name].byWildcard.complete, s.known[k.name].byWildcard.completed = true, known.byWildcard.completed
		}
		s.names[k.name] = map[string]bool{}
		for _, name := range Union(c.interests(k)) {
			s.names[k.name][name] = true
		}
		for name, at := range c.wanted[k.name] {
			if c.now.Sub(at) < c.linger {
				s.names[k.name][name] = true
			}
		}
	}
	c.disk = s
}

// kept is what goes to disk: nothing of what does not exist.
func (v *voice) kept() *voice {
	k := newVoice()
	for name, w := range v.words {
		if w.present {
			k.words[name] = w
		}
	}
	k.warm = true
	return k
}

// load: a relay has begun with what is on disk.
func (c *Checker) load() {
	c.loaded, c.loadedAt = map[string]map[string]bool{}, c.now
	if c.disk == nil {
		return
	}
	for _, k := range kinds {
		known := c.disk.known[k.name]
		c.known[k.name].byName, c.known[k.name].byWildcard = known.byName.kept(), newVoice()
		if w := known.byWildcard; w.complete {
			again := w.kept()
			again.complete, again.completed = true, w.completed
			c.known[k.name].byWildcard = again
		}
		for name := range c.disk.names[k.name] {
			c.wanted[k.name][name] = c.now // it lingers
		}
		if !c.uncertain {
			c.loaded[k.name] = maps.Clone(c.disk.names[k.name])
		}
	}
}
