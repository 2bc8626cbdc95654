package session

import (
	"slices"
	"time"
)

// Another configuration, while streams are open. Nothing that clients were sent is
// taken back: the Hub and its Tables stay, and a stream that has to be opened again resumes
// with the versions at hand.

// Reconfigure puts another configuration in force. What a group has of its own stays: its
// node, its headers, its hop and the fingerprint. renewed[i] says that entry i is
// reached over another Conn than before, if it was in the list at all.
//
// The entry in use stays in use while it is in the list, wherever; those that are now
// before it are probed. If it is gone, the first one takes its place. Its streams go on,
// unless they are of another connection or ask in another way now.
func (c *Core) Reconfigure(to Config, renewed []bool, now time.Time) {
	was := c.config
	to.Node, to.Headers, to.Hop, to.Fingerprint = was.Node, was.Headers, was.Hop, was.Fingerprint
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
		c.entries[i] = entryFrom(old, e, renewed[i], to.Backoff)
		c.entries[i].probe = slot{role: Probe, entry: i}
	}
	if at < 0 {
		c.current, c.heard, c.wary, c.hushed = 0, false, true, time.Time{}
		c.main.openAt = c.soon(&c.main, now)
		c.effects = append(c.effects, Effect{Notice: "the control plane in use is not in the configuration any more; the first one is used", Entry: c.entry().Name})
	} else {
		c.current = at
		for _, s := range c.slots() {
			s.entry = at
		}
	}
	c.main.backoff = &c.entry().backoff
	c.aux.backoff.schedule(to.Backoff)
	if at >= 0 && (renewed[at] || asksOtherwise(&was, &to) || inUse.Entry != c.entry().Entry) {
		c.renewAll(now)
	}
	c.changesAt = now
}

// entryFrom is an entry with what is known of it, if it was in the list before. What it
// failed with may be what was changed, so that it is tried again at once.
func entryFrom(old []entry, e Entry, renewed bool, b Backoff) entry {
	i := slices.IndexFunc(old, func(o entry) bool { return o.Name == e.Name })
	if i < 0 {
		return entry{Entry: e, backoff: b}
	}
	known := old[i]
	if known.Mode != e.Mode {
		known.noDelta, known.triedDelta = false, time.Time{}
	}
	known.Entry, known.lowered = e, 0
	known.backoff.schedule(b)
	if renewed {
		known.backoff, known.notBefore, known.unchecked = b, time.Time{}, false
	}
	return known
}

// schedule changes the schedule, and keeps how far it has come.
func (b *Backoff) schedule(to Backoff) {
	b.Initial, b.Max, b.Factor, b.Jitter = to.Initial, to.Max, to.Factor, to.Jitter
}

// asksOtherwise: what is asked on a stream, or how its answers are read, has changed. A
// server keeps state for the life of a stream, so that this wants a new one.
func asksOtherwise(a, b *Config) bool {
	return a.WildcardForm != b.WildcardForm || a.Chunks != b.Chunks || a.ExplicitMissing != b.ExplicitMissing ||
		a.Versions != b.Versions || a.MaxRequest != b.MaxRequest || !slices.Equal(a.Types, b.Types)
}

// renewAll opens the streams of the entry in use again, with the versions at hand.
func (c *Core) renewAll(now time.Time) {
	waiting := c.main.id == 0 && !c.main.openAt.IsZero()
	if c.main.id != 0 || waiting {
		c.shutAux()
		c.shut(&c.main)
		c.main.openAt = c.soon(&c.main, now)
	}
	for _, s := range c.solo {
		if s.id != 0 {
			c.shut(s)
			s.openAt = c.soon(s, now)
		}
	}
}

// soon is when a stream may be opened that all groups open at the same time: they do not
// all come at once (ERR-1).
func (c *Core) soon(s *slot, now time.Time) time.Time {
	return latest(now.Add(time.Duration(c.random()*float64(reconnectFloor))), s.attempt.Add(reconnectFloor))
}
