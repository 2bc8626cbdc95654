package session

import (
	"maps"
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Probes are streams to the entries that are preferred to the one in use (UP-14).
// Each probe asks for one lane, a different one each time, and for a different part of the names
// if there are many. Its resources do not go to the Hub. If a resource comes, and the stream is
// alive some time later, the relay switches back to the entry.

// tickProbes schedules the probes, gives up those that get no resource, and switches back.
func (c *Core) tickProbes(now time.Time) {
	if c.current == 0 {
		return
	}
	idle := len(c.probeable()) == 0
	for i := range c.entries[:c.current] {
		e := &c.entries[i]
		p := &e.probe
		switch {
		case idle:
			c.dropProbe(e)
		case p.open() && !p.answered && due(c.probeDeadline(e), now): // it has got no resource
			c.shut(p)
			c.probeLater(e, now)
		case p.open() && p.answered:
			at := e.backAt(&c.config)
			if !at.After(now) && (!c.checks(p) || !p.alive.heard.Before(at)) {
				c.failback(i, now)
				return
			}
			c.tickAlive(p, now)
		case p.id == 0 && p.openAt.IsZero():
			p.openAt = latest(now, e.notBefore)
		}
	}
}

// probeDeadline is when tickProbes has something to do for an entry whose probe is open.
func (c *Core) probeDeadline(e *entry) time.Time {
	switch p := &e.probe; {
	case !p.answered:
		return p.opened.Add(c.config.Missing)
	case !c.checks(p):
		return e.backAt(&c.config)
	}
	return c.aliveAt(&e.probe)
}

// dropProbe ends the probe of an entry, and schedules no other.
func (c *Core) dropProbe(e *entry) {
	c.shut(&e.probe)
	e.probe.openAt, e.back = time.Time{}, time.Time{}
}

func (c *Core) probeLater(e *entry, now time.Time) {
	e.notBefore, e.back = now.Add(e.attempts.failed(&c.config.Backoff, c.random())), time.Time{}
	e.probe.openAt = e.notBefore
}

// probeOpened puts the lane to ask for on a probe.
func (c *Core) probeOpened(s *slot) {
	e := &c.entries[s.entry]
	lanes := c.probeable()
	round := e.turn / max(len(lanes), 1) // how often all lanes had their turn
	s.stream = c.newStream(s, func(lane fanout.Lane, _ bool) ([]string, []cache.Held) {
		names := c.hub.On(lane).Names()
		if n, most := len(names), c.config.bounds().Probed; n > most {
			from := round * most % n
			names = slices.Concat(names[from:], names[:from])[:most]
		}
		return names, nil
	})
	if len(lanes) > 0 {
		s.stream.carry(lanes[e.turn%len(lanes)], false, s.opened)
		e.turn++
	}
}

// probeable are the lanes that a probe may ask for, in order.
func (c *Core) probeable() []fanout.Lane {
	lanes := slices.SortedFunc(maps.Keys(c.lanes()), inPlan)
	return slices.DeleteFunc(lanes, func(l fanout.Lane) bool { return !c.Allowed(l.Type) })
}

// probed handles a response on a probe: only the first resource counts.
func (c *Core) probed(s *slot, d *Response, now time.Time) {
	s.alive.message(now)
	if u := s.stream.used[d.TypeURL]; u != nil && len(d.Update.Set) > 0 && !s.answered {
		s.answered = true
		c.entries[s.entry].back = now
	}
}
