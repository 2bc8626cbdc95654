package session

import (
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/hop"
)

// Receive handles a response. The caller carries out the Effects, and then calls Applied,
// so that the relay acknowledges a response only once the Hub has it.
func (c *Core) Receive(id StreamID, d *Response, now time.Time) {
	s := c.slot(id)
	if !s.open() {
		return
	}
	e := c.entryOf(s)
	e.heard, e.fails = now, false
	if s.role == Probe {
		c.probed(s, d, now)
		return
	}
	calm := c.hears(s, d, now)
	if c.endsWindow(s, d, now) {
		calm = false
	}
	used := s.stream.used[d.TypeURL]
	if used == nil {
		c.emit(Dropped{Reason: Unsubscribed}) // UP-10
		return
	}
	lane, l := used.lane, s.stream.lanes[d.TypeURL] // l is nil if the stream does not carry the type now
	if l != nil {
		s.stream.wake(l)
		delete(s.stream.awake.shown, l)
	}
	c.speaks(lane)
	delete(c.accepted, lane) // until this response is acknowledged
	c.suspects.clear(d.TypeURL)
	d.Update.At = now
	c.bodyless(used, l, d)
	c.errors(l, d)
	used.spoke, s.stream.taking = true, true
	if s.stream.longestOf == d.TypeURL {
		s.stream.taken = s.stream.longest
	}
	if d.announces() {
		used.delivered = true
	}
	if !l.asked() {
		if !lane.Wildcard && !d.sotw { // of dropped names the Hub notes it (UP-19), of wanted ones it may serve (H-1)
			c.learned(s, lane, &cache.Update{Set: d.Update.Set, Removed: d.Update.Removed, Source: d.Update.Source}, now)
		}
		return // nobody wants the lane any more: the response is only acknowledged (H-32)
	}
	if l.wildcardLeft() {
		return // likewise
	}
	c.fits(s, l, d)
	d.Routine = calm && c.routine(l, d)
	c.answer(l, d, now)
	c.fullState(l, d)
	c.settles(s, l, d)
	c.completes(l, d)
	c.learned(s, lane, &d.Update, now)
}

// hears takes in what a response shows of its stream and of the server, whatever is in it. It is
// calm if none of that is news.
func (c *Core) hears(s *slot, d *Response, now time.Time) (calm bool) {
	if c.resorting() {
		c.hearsLastResort(s, d, now)
		return false
	}
	lives := s.answered && !s.outage.on() && s.alive.since.IsZero()
	calm = lives && len(c.unavailable)+len(c.suspects.strikes) == 0
	if s.role == Auxiliary && !c.heard {
		c.main.wakeShown()
		c.main.outage = outage{} // it began with the entry before this one
	}
	if s.role == Solo && !s.answered {
		c.changesAt = now // for acquit
	}
	if !lives {
		s.wakeShown()
	}
	s.answered, s.outage, c.heard = true, outage{}, true
	s.alive.message(now)
	c.alive = now
	c.tellAlive(now)
	if c.keepsLingering {
		c.tickLinger(now) // the stream may end before the next Tick
	}
	c.entryOf(s).noDelta = s.sotw
	return !c.identifies(d.identifier) && calm
}

// endsWindow ends the time in which changes of interest in a type are gathered, since its last request is answered
// (UP-6). It reports whether there are some.
func (c *Core) endsWindow(s *slot, d *Response, now time.Time) (some bool) {
	l := s.stream.lanes[d.TypeURL]
	if l == nil || l.gathers.IsZero() {
		return false
	}
	if l.gathers = (time.Time{}); c.changesAt.IsZero() {
		return false
	}
	c.changesAt = now
	return true
}

// identifies takes in what the server calls itself, if it says so, and reports whether that is news.
func (c *Core) identifies(as string) (news bool) {
	if as == "" {
		return false
	}
	if relay := hop.IsRelay(as); relay != c.entry().relay {
		c.entry().relay, news = relay, true // timers may be shorter now
		c.wakeAll()
	}
	if as != c.hub.Identifier() {
		news = true
		c.emit(Identified{as})
	}
	return news
}

// bodyless finds out of each resource without a body whether it is a heartbeat, a negative answer
// or a fault.
func (c *Core) bodyless(used *typeState, l *laneState, d *Response) {
	for _, r := range d.Bodyless {
		name, _ := cache.NameOf(r)
		switch {
		case d.TypeURL.V3() != cache.VirtualHost && c.beats(used, d, name, r.GetVersion()):
			d.Update.Heartbeats = append(d.Update.Heartbeats, cache.Heartbeat{Name: name, TTL: r.GetTtl().AsDuration()})
			d.Update.Kept = append(d.Update.Kept, name)
		case len(r.GetAliases()) > 0:
			d.Update.Negative = append(d.Update.Negative, cache.NewResource(d.TypeURL, r, c.config.Fingerprint))
		case l.leaves(name): // H-32
		default:
			d.malformed(name)
			d.fault("%q has no body, and is neither a heartbeat nor a negative answer", name)
		}
	}
}

// errors leaves out the errors of names that are given up (ERR-8). Any error but NOT_FOUND says
// that the resource may exist.
func (c *Core) errors(l *laneState, d *Response) {
	d.Update.Errors = slices.DeleteFunc(d.Update.Errors, func(e cache.Error) bool {
		return !d.sotw && l.leaves(e.Name) && !c.hub.Of(d.TypeURL).Returns(e.Name)
	})
	for _, e := range d.Update.Errors {
		if e.Status.GetCode() != cache.NotFound {
			d.Update.Kept = append(d.Update.Kept, e.Name)
		}
	}
}

// routine reports whether a response that came in a calm brings new content and nothing else.
func (c *Core) routine(l *laneState, d *Response) bool {
	if d.sotw || !d.onlySets() || c.hub.Of(d.TypeURL).Remembers() {
		return false
	}
	return l.answered && !l.settle.waiting && len(l.globs.waiting) == 0
}

// answer takes off a lane what waits for an answer, and now has one.
func (c *Core) answer(l *laneState, d *Response, now time.Time) {
	if d.Update.First = !l.answered; d.Update.First {
		l.answeredAt = now
		c.config.Answers.Add(c.entry().Name, l.lane.Type)
	}
	delete(c.bare, l.lane)
	c.faulty(l.lane, &d.Update, now)
	l.answered = true
	l.answersAgain(&d.Update)
	l.echo.hears(&d.Update, func(set []cache.Received) map[string]bool { return c.hub.On(l.lane).Same(set) })
	c.found(d.TypeURL, &d.Update)
}

// fullState marks a response that has all resources of its type, so that others are gone.
func (c *Core) fullState(l *laneState, d *Response) {
	// A resource whose name cannot be read may be any: a full-state response with one
	// shows of no name that it is missing.
	d.Update.Full = d.sotw && !d.Update.Unreadable && c.hub.Properties(d.TypeURL).FullState
}

// settles reports a first answer that came in several responses as complete, once it is. What was
// not announced by then is swept.
func (c *Core) settles(s *slot, l *laneState, d *Response) {
	if !l.settle.waiting {
		return
	}
	d.adds = c.hub.On(l.lane).Lacks(d.Update.Set)
	d.Update.Synced = l.settle.response(d, c.chunks(), &c.config)
	d.Update.Sweep = d.Update.Synced && !d.sotw // TRANSLATE-5 and TRANSLATE-7 instead
	if d.Update.Sweep {
		c.sweeps(s, l.lane, &d.Update)
		d.repeats = l.echo.judge()
	}
}

// beats reports whether a resource without a body is a heartbeat: its version is that of the copy
// in the Hub (TTL-4). On a SotW stream the version is that of the whole response (TRANSLATE-10).
func (c *Core) beats(t *typeState, d *Response, name, version string) bool {
	if d.sotw {
		return d.Version == t.sotw.version && c.hub.On(t.lane).Has(name)
	}
	return c.hub.On(t.lane).Holds(name, version)
}

// Applied queues the answer to a response: an ACK, or a NACK if the response was not
// structurally sound. overrun means that the control plane sends without reading.
func (c *Core) Applied(id StreamID, d *Response, now time.Time) (nack string, overrun bool) {
	s := c.slot(id)
	if !s.open() || s.stream.used[d.TypeURL] == nil {
		return "", false
	}
	s.stream.taking = false
	nack = d.nack()
	c.nacks.take(d, nack, now)
	if l := s.stream.lanes[d.TypeURL]; l != nil {
		s.stream.wake(l)
		l.globs.applied(d, c.chunks(), &c.config, now)
		if l.settle.applied(d, c.config.Answers.habit(c.entry().Name), c.chunks(), &c.config, now); l.settle.split {
			c.learnsHabit(l)
		}
		if d.repeats {
			c.reopen(s, l, now) // this ends the stream, so no ACK is queued
			return nack, false
		}
	}
	if c.resorting() && c.entryOf(s).probe.answered {
		return nack, false // likewise: it is left for the entry that has answered a probe
	}
	v := ack{typeURL: d.TypeURL, nonce: d.Nonce, nack: nack}
	if d.sotw {
		s.stream.judge(&v, d.Version, now)
	}
	s.stream.acks = append(s.stream.acks, v)
	return nack, len(s.stream.acks) > c.config.bounds().Acks
}

// learnsHabit notes how the entry in use has sent a set, if it was shown nothing of that.
func (c *Core) learnsHabit(l *laneState) {
	switch {
	case l.mapped:
	case l.settle.split:
		c.config.Answers.sends(c.entry().Name, HabitSplit)
	default:
		c.config.Answers.sends(c.entry().Name, HabitWhole)
	}
}
