package session

import (
	"slices"
	"time"
)

// Reconfigure puts a new configuration in force while streams are open. The Hub stays as it is,
// so that clients keep what they have, and a stream that must be opened again shows the versions
// in the Hub. The group keeps its node, headers, hop, fingerprint and answers. renewed[i] says that entry i
// was not in the list before, or is reached over a different Conn.
//
// The entry in use stays in use while it is anywhere in the list; entries that are now before it
// are probed. If it is gone, the first one takes its place. Its streams go on, unless its Conn has
// changed, or something that they have asked depends on a setting that has.
func (c *Core) Reconfigure(to Config, renewed []bool, now time.Time) {
	was := c.config
	to.Identity, to.Fingerprint, to.Answers = was.Identity, was.Fingerprint, was.Answers
	for i := range c.entries {
		c.dropProbe(&c.entries[i])
	}
	old, inUse := c.entries, *c.entry()
	at := slices.IndexFunc(to.Entries, func(e Entry) bool { return e.Name == inUse.Name })
	if at < 0 {
		c.quit(now)
	}
	c.config = to
	c.entries = make([]entry, len(to.Entries))
	for i, e := range to.Entries {
		c.entries[i] = entryFrom(old, e, renewed[i])
		c.entries[i].probe = slot{role: Probe, entry: i}
	}
	if at < 0 {
		c.current, c.heard, c.afterSwitch, c.quietUntil = 0, false, true, time.Time{}
		c.shutUntil(&c.main, c.soon(now))
		c.notice(c.entry(), "the control plane in use is not in the configuration any more; the first one is used")
	} else {
		c.current = at
		for _, s := range c.slots() {
			s.entry = at
		}
	}
	c.main.attempts = &c.entry().attempts
	stays := at >= 0 && !renewed[at] && inUse.Entry == c.entry().Entry
	if at >= 0 && (!stays || asksOtherwise(&was, &to)) {
		c.renewAll(now)
	}
	c.changesAt = now
	c.wakeAll()
}

// entryFrom returns the entry for e, with its state if it was in the list before. If its Conn has
// changed, it is tried again at once, since the change may mend its failure.
func entryFrom(old []entry, e Entry, renewed bool) entry {
	i := slices.IndexFunc(old, func(o entry) bool { return o.Name == e.Name })
	if i < 0 {
		return entry{Entry: e}
	}
	known := old[i]
	if known.Mode != e.Mode {
		known.noDelta, known.triedDelta = false, time.Time{}
	}
	known.Entry, known.lowered = e, 0
	if renewed {
		known.attempts, known.notBefore, known.unchecked = attempts{}, time.Time{}, false
	}
	return known
}

// asksOtherwise reports whether the streams have to be opened again for another configuration.
func asksOtherwise(a, b *Config) bool {
	return a.Dialect != b.Dialect || !slices.Equal(a.Types, b.Types)
}

func (c *Core) renewAll(now time.Time) {
	if c.main.engaged() {
		c.shutAux()
		c.shutUntil(&c.main, c.soon(now))
	}
	c.dropTrial(now)
	for _, s := range c.solo {
		if s.id != 0 {
			c.shutUntil(s, c.soon(now))
		}
	}
}

// soon is when to open a stream that all groups open: a random time within reconnectFloor, so
// that they do not all come at once (ERR-1).
func (c *Core) soon(now time.Time) time.Time {
	return now.Add(time.Duration(c.random() * float64(reconnectFloor)))
}
