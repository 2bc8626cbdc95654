package session

import (
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// The relay replaces a stream in two cases in which the resources of a lane are uncertain.
//
// A wildcard was asked for with versions, and no response has come. Its set may be unchanged,
// but no timer proves that. If the set is only from disk, was never complete, or had versions
// that were not shown, the relay asks again without versions: then the server has to answer
// (RECON-19, RECON-12).
//
// A resource was announced with a fault. The server believes it delivered, and announces it again
// on a new stream that does not show its version (ERR-10).

const (
	// faultFirst is how long after a fault the stream is replaced. The interval doubles each
	// time, up to faultMax.
	faultFirst = 30 * time.Second
	faultMax   = 10 * time.Minute
)

// fault says when to replace a stream because of the faults of a lane. It outlives streams.
type fault struct {
	at   time.Time
	wait time.Duration
	told bool // the fault was reported
}

// bareAt is when to consider asking for a wildcard without versions, or zero.
func (c *Core) bareAt(s *slot, l *laneState) (at time.Time) {
	if !l.mayBeUnchanged() || c.bare[l.lane] || !c.attentive(s, l) {
		return at
	}
	return l.askedAt.Add(c.missingAfter())
}

// mayBeUnchanged reports whether the lane is a wildcard that was asked for with versions and is not answered.
func (l *laneState) mayBeUnchanged() bool { return l.lane.Wildcard && l.mapped && l.awaits() }

// tickBare asks for a wildcard without versions if it is time to and its set is uncertain, and so
// for all others of the stream that have no response. It reports whether it replaced the stream.
func (c *Core) tickBare(s *slot, l *laneState, now time.Time) (replaced bool) {
	if !due(c.bareAt(s, l), now) {
		return false
	}
	if !c.hub.Of(l.lane.Type).Unproven() {
		l.mapped = false // a lane is considered once
		c.learned(s, l.lane, &cache.Update{Unchanged: true}, now)
		return false
	}
	for _, other := range s.stream.lanes {
		if !c.bareAt(s, other).IsZero() && c.hub.Of(other.lane.Type).Unproven() {
			c.bare[other.lane] = true
		}
	}
	c.notice(c.entryOf(s), "the control plane does not answer for a type of which it was shown versions, and the relay's copy may be out of date; asking for it without versions")
	c.replace(s, now)
	return true
}

// faulty schedules the replacement of the stream if a response has faults.
func (c *Core) faulty(lane fanout.Lane, u *cache.Update, now time.Time) {
	if f := c.faults[lane]; f == nil && (u.Unreadable || len(u.Malformed) > 0) {
		c.faults[lane] = &fault{at: now.Add(faultFirst), wait: faultFirst}
	}
}

// faultAt is when tickFault has something to do for a lane, or zero.
func (c *Core) faultAt(l *laneState) (at time.Time) {
	if f := c.faults[l.lane]; f != nil && l.asked() {
		at = latest(f.at, l.askedAt.Add(f.wait))
	}
	return at
}

// tickFault reports the faults of a lane that concern clients, and replaces the stream if it is
// a Delta stream. It reports whether it did.
func (c *Core) tickFault(s *slot, l *laneState, now time.Time) (replaced bool) {
	if !due(c.faultAt(l), now) {
		return false
	}
	f := c.faults[l.lane]
	u := c.hub.On(l.lane).Uncertain()
	if !u.Any() {
		delete(c.faults, l.lane)
		return false
	}
	f.wait = min(2*f.wait, faultMax)
	f.at = now.Add(f.wait)
	if u.Clients == 0 && !u.Awaited {
		return false // the faults concern no client
	}
	if !f.told {
		f.told = true
		c.emit(Uncertain{Lane: l.lane, Entry: c.entryOf(s).Name, Uncertainty: u})
	}
	if !s.sotw { // a SotW server sends the whole set with each response anyway
		c.replace(s, now)
	}
	return !s.sotw
}
