package session

import (
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// A new stream in place of the one there is, for the sake of what is uncertain on it.
//
// A wildcard that was asked for with versions, and of which nothing has come, may be as it
// was shown; but no timer says so. Where its set is only from disk, or was never complete, or
// not all of its versions could be shown, it is asked for once more without them: then there is
// something to say (RECON-19, RECON-12).
//
// What was announced with a fault the server believes delivered. A new stream, which does not
// show it, has it announced again (ERR-10).

const (
	// faultFirst is how long after a fault a stream is renewed for it, at intervals that
	// double from there up to faultMax.
	faultFirst = 30 * time.Second
	faultMax   = 10 * time.Minute
)

// fault is when a stream is renewed for the faults of a lane. It outlives streams.
type fault struct {
	at   time.Time
	wait time.Duration
	told bool // people know
}

// bareAt is when a wildcard is asked for without versions, or zero.
func (c *Core) bareAt(s *slot, l *laneState) (at time.Time) {
	if !l.lane.Wildcard || l.first || l.answered || !l.mapped || c.bare[l.lane] || !c.attentive(s, l) {
		return at
	}
	return l.askedAt.Add(c.missingAfter())
}

// tickBare asks for a wildcard without versions, if it is time to, and for the others of the
// stream of which nothing has come either. It reports whether another stream takes the place of
// this one.
func (c *Core) tickBare(s *slot, l *laneState, now time.Time) (replaced bool) {
	if at := c.bareAt(s, l); at.IsZero() || at.After(now) {
		return false
	}
	for _, other := range s.stream.lanes {
		if !c.bareAt(s, other).IsZero() && c.hub.Of(other.lane.Type).Unproven() {
			c.bare[other.lane] = true
		}
	}
	l.mapped = false // it is looked at once
	if !c.bare[l.lane] {
		return false
	}
	c.effects = append(c.effects, Effect{
		Notice: "the control plane says nothing of a type that it was shown versions of, and what the relay has of it is not certain; asking for it without versions",
		Entry:  c.entries[s.entry].Name,
	})
	c.replace(s, now)
	return true
}

// faulty notes a response with faults.
func (c *Core) faulty(lane fanout.Lane, u *cache.Update, now time.Time) {
	if f := c.faults[lane]; f == nil && (u.Hidden || len(u.Faulty) > 0) {
		c.faults[lane] = &fault{at: now.Add(faultFirst), wait: faultFirst}
	}
}

// faultAt is when a stream is renewed for the faults of a lane, or zero.
func (c *Core) faultAt(l *laneState) (at time.Time) {
	if f := c.faults[l.lane]; f != nil && !l.first {
		at = latest(f.at, l.askedAt.Add(f.wait))
	}
	return at
}

// tickFault renews a Delta stream for what is in doubt on a lane because of a fault, and that
// clients ask for. It reports whether another stream takes the place of this one.
func (c *Core) tickFault(s *slot, l *laneState, now time.Time) (replaced bool) {
	if at := c.faultAt(l); at.IsZero() || at.After(now) {
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
		return false // it concerns nobody
	}
	if !f.told {
		f.told = true
		c.effects = append(c.effects, Effect{Lane: l.lane, Entry: c.entries[s.entry].Name, Uncertain: &u})
	}
	if !s.sotw { // a SotW server shows all of it with each response
		c.replace(s, now)
	}
	return !s.sotw
}
