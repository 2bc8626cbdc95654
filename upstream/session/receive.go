package session

import (
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/hop"
)

// Receive handles a response. The caller carries out the Effects, and then calls Applied,
// so that the relay acknowledges a response only once the Hub has it.
func (c *Core) Receive(id StreamID, d *Response, now time.Time) {
	s := c.slot(id)
	if s == nil || !s.open() {
		return
	}
	c.entries[s.entry].heard = now
	if s.role == Probe {
		c.probed(s, d, now)
		return
	}
	calm := s.answered && s.outage.since.IsZero() && s.alive.since.IsZero() && len(c.told)+len(c.suspects.strikes) == 0
	if s.role == Auxiliary && !c.heard {
		c.main.outage = outage{} // it began with the entry before this one
	}
	if s.role == Solo && !s.answered {
		c.changesAt = now // for acquit
	}
	s.answered, s.outage, c.heard = true, outage{}, true
	s.alive.message(now)
	c.tellAlive(now)
	if c.keepsLingering {
		c.tickLinger(now) // the stream may end before the next Tick
	}
	c.entries[s.entry].noDelta = s.sotw
	if relay := hop.IsRelay(d.identifier); d.identifier != "" && relay != c.entry().relay {
		c.entry().relay, calm = relay, false // timers may be shorter now
	}
	if d.identifier != "" && d.identifier != c.hub.Identifier() {
		calm = false
		c.effects = append(c.effects, Effect{Identifier: d.identifier})
	}
	used := s.stream.used[d.TypeURL]
	if used == nil {
		c.effects = append(c.effects, Effect{Drop: Unsubscribed}) // UP-10
		return
	}
	lane := used.lane
	c.speaks(lane)
	delete(c.accepted, lane) // until this response is acknowledged
	c.suspects.clear(d.TypeURL)
	d.Update.At = now
	for _, r := range d.Bodyless {
		name, _ := cache.NameOf(r)
		switch {
		case d.TypeURL != cache.VirtualHost && c.beats(used, d, name, r.GetVersion()):
			d.Update.Heartbeats = append(d.Update.Heartbeats, cache.Heartbeat{Name: name, TTL: r.GetTtl().AsDuration()})
			d.Update.Kept = append(d.Update.Kept, name)
		case len(r.GetAliases()) > 0:
			d.Update.Negative = append(d.Update.Negative, cache.NewResource(d.TypeURL, r, c.config.Fingerprint))
		case s.stream.lanes[d.TypeURL].leaves(name): // H-32
		default:
			d.faulty(name)
			d.fault("%q has no body, and is neither a heartbeat nor a negative answer", name)
		}
	}
	l := s.stream.lanes[d.TypeURL]
	d.Update.Errors = slices.DeleteFunc(d.Update.Errors, func(e cache.Error) bool { return !d.sotw && l.leaves(e.Name) && !c.hub.Of(d.TypeURL).Returns(e.Name) }) // ERR-8
	for _, e := range d.Update.Errors {
		if e.Status.GetCode() != cache.NotFound {
			d.Update.Kept = append(d.Update.Kept, e.Name)
		}
	}
	used.spoke, s.stream.taking = true, true
	used.delivered = used.delivered || d.Update.Hidden || len(d.Update.Set)+len(d.Update.Faulty) > 0
	if (l == nil || !l.asked()) && !lane.Wildcard && !d.sotw { // of dropped names the Hub notes it (UP-19), of wanted ones it may serve (H-1)
		c.learned(s, lane, &cache.Update{Set: d.Update.Set, Removed: d.Update.Removed, Source: d.Update.Source}, now)
	}
	if l == nil || !l.asked() || l.lane.Wildcard && !l.subscribed(fanout.Wildcard) && !l.want.has(fanout.Wildcard) {
		return // nobody wants the lane any more: the response is only acknowledged (H-32)
	}
	d.Routine = calm && l.answered && !l.settle.waiting && !d.sotw && d.onlySets() && !c.hub.Of(d.TypeURL).Remembers()
	d.Update.First = !l.answered
	delete(c.bare, lane)
	c.faulty(lane, &d.Update, now)
	l.answered = true
	l.answers(&d.Update)
	l.insisted.answers(&d.Update)
	l.answersAgain(&d.Update)
	l.echo.hears(&d.Update, func(set []cache.Received) map[string]bool { return c.hub.On(lane).Same(set) })
	c.found(lane.Type, &d.Update)
	// A resource whose name cannot be read may be any: a full-state response with one
	// shows of no name that it is missing.
	d.Update.Full = d.sotw && !d.Update.Hidden && c.hub.Properties(d.TypeURL).FullState
	if d.sotw && (l.lane.Wildcard || c.hub.Properties(d.TypeURL).FullState) {
		// All bodies are kept. A SotW server cannot be asked for a single one of them again, and
		// clients would wait for it for ever (VALID-5).
		for i, r := range d.Update.Set {
			d.Update.Set[i].Resource = r.Cacheable()
		}
	}
	if l.settle.waiting {
		d.adds = c.hub.On(lane).Lacks(d.Update.Set)
		d.Update.Synced = l.settle.response(d, c.chunks(), &c.config)
		d.Update.Sweep = d.Update.Synced && !d.sotw && !l.settle.blind // TRANSLATE-5 and TRANSLATE-7 instead
		if d.Update.Sweep && lane.Wildcard {
			c.sweeps(s, lane, d.Update.Set)
			d.repeats = l.echo.judge()
		}
	}
	c.learned(s, lane, &d.Update, now)
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
	if s == nil || !s.open() || s.stream.used[d.TypeURL] == nil {
		return "", false
	}
	s.stream.taking = false
	l := s.stream.lanes[d.TypeURL]
	if l != nil {
		l.settle.applied(d.adds, c.chunks(), &c.config, now)
	}
	nack = d.nack()
	if l != nil && d.repeats {
		c.reopen(s, l, now) // this ends the stream, so no ACK is queued
		return nack, false
	}
	v := ack{typeURL: d.TypeURL, nonce: d.Nonce, nack: nack}
	if d.sotw {
		s.stream.judge(&v, d.Version, now)
	}
	s.stream.acks = append(s.stream.acks, v)
	return nack, len(s.stream.acks) > c.config.bounds().Acks
}
