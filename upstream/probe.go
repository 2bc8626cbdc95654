package upstream

import (
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Probes are streams to the entries that are preferred to the one in use (UP-14).
// Each asks for one lane, another one each time, and tells the Hub nothing: what
// counts is that a resource comes.

// maxProbed bounds the names that a probe asks for.
const maxProbed = 100

// tickProbes schedules the probes, and gives up those that get no resource.
func (c *Core) tickProbes(now time.Time) {
	idle := len(c.probeable()) == 0
	for i := range c.entries[:c.current] {
		e := &c.entries[i]
		p := &e.probe
		switch {
		case idle:
			c.shut(p)
			p.openAt = time.Time{}
		case p.open() && !p.giveUpAt(&c.config).After(now):
			c.shut(p)
			c.probeLater(e, now)
		case p.id == 0 && p.openAt.IsZero():
			p.openAt = latest(now, e.notBefore)
		}
	}
}

// giveUpAt is when a probe has been silent for too long.
func (s *slot) giveUpAt(c *Config) time.Time { return s.opened.Add(c.Missing) }

func (c *Core) probeLater(e *entry, now time.Time) {
	e.notBefore = now.Add(e.backoff.Failed(c.random()))
	e.probe.openAt = e.notBefore
}

// probeOpened lets a probe ask.
func (c *Core) probeOpened(s *slot) {
	e := &c.entries[s.entry]
	lanes := c.probeable()
	s.stream = c.newStream(s, func(lane fanout.Lane, _ bool) ([]string, []cache.Held, bool) {
		names := c.hub.Names(lane)
		if n := len(names); n > maxProbed {
			names = names[e.turn*maxProbed%(n-maxProbed+1):][:maxProbed]
		}
		return names, nil, true
	})
	if len(lanes) > 0 {
		s.stream.carry(lanes[e.turn%len(lanes)], false, s.opened)
		e.turn++
	}
}

// probeable are the lanes that a probe may ask for, in order.
func (c *Core) probeable() []fanout.Lane {
	lanes := slices.DeleteFunc(c.hub.Lanes(), func(l fanout.Lane) bool { return !c.allowed(l.Type) })
	slices.SortFunc(lanes, inPlan)
	return lanes
}

// probed takes in what a probe brings: if it is a resource, the entry is put to use.
func (c *Core) probed(s *slot, d *Response, now time.Time) {
	if u := s.stream.used[d.typeURL]; u == nil || len(d.update.Set) == 0 {
		return
	}
	e := &c.entries[s.entry]
	e.backoff, e.notBefore = c.config.Backoff, time.Time{}
	c.switchTo(s.entry, now)
}

// newStream is the state of a stream that has just been opened.
func (c *Core) newStream(s *slot, r restate) *streamState {
	e := &c.entries[s.entry]
	origin := cache.Origin{Entry: e.Name, SotW: s.sotw}
	if r == nil {
		r = c.restate(e, origin)
	}
	stream := newStream(&c.config, c.hub, origin, r)
	stream.limit = e.maxRequest(&c.config)
	switch {
	case !s.sotw:
		stream.writer = deltaWriter{stream}
	case s.role == Probe: // what it accepts is of no account
		stream.writer = sotwWriter{stream, make(map[fanout.Lane]acceptance)}
	default:
		stream.writer = sotwWriter{stream, c.accepted}
	}
	return stream
}
