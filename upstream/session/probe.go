package session

import (
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
	for i := range c.entries[:c.current] {
		e := &c.entries[i]
		p := &e.probe
		switch {
		case len(c.probeable(e)) == 0:
			c.dropProbe(e)
		case !p.engaged():
			p.openAt = latest(now, e.notBefore)
		case !p.open():
		case !p.answered:
			if due(c.probeDeadline(e), now) { // it has got no resource
				c.shut(p)
				c.probeLater(e, now)
			}
		case c.mayReturn(e, now):
			c.failback(i, now)
			return
		default:
			c.tickAlive(p, now)
		}
	}
}

// mayReturn reports whether a preferred entry whose probe has a resource has been alive for long enough.
// The last resort is left at once.
func (c *Core) mayReturn(e *entry, now time.Time) bool {
	if c.resorting() {
		return true
	}
	at := e.backAt(&c.config)
	return !at.After(now) && c.aliveAsOf(&e.probe, at)
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
	e := c.entryOf(s)
	lanes := c.probeable(e)
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
		s.stream.carry(lanes[e.turn%len(lanes)], false)
		e.turn++
	}
}

// probeable are the lanes that a probe of an entry may ask for, in order: those that it is likely to
// answer, since a type that is unknown to it may cost the probe its stream, or any if there are none.
func (c *Core) probeable(e *entry) []fanout.Lane {
	var likely, others []fanout.Lane
	for lane := range c.lanes() {
		t := lane.Type
		switch {
		case !c.Allowed(t):
		case c.suspects.quarantined[t] == nil && (t.Basic() || c.config.Answers.has(e.Name, t)):
			likely = append(likely, lane)
		default:
			others = append(others, lane)
		}
	}
	if len(likely) == 0 {
		likely = others
	}
	slices.SortFunc(likely, inPlan)
	return likely
}

// probed handles a response on a probe: only the first resource counts.
func (c *Core) probed(s *slot, d *Response, now time.Time) {
	s.alive.message(now)
	if u := s.stream.used[d.TypeURL]; u != nil && len(d.Update.Set) > 0 && !s.answered {
		s.answered = true
		c.entryOf(s).back = now
	}
}
