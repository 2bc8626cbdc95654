package session

import (
	"math"
	"slices"
	"time"
)

// Backoff says how long to wait before the next attempt to open a stream: Initial after the first
// failure, Max at most; each delay is spread by ± Jitter and grows by Factor (ERR-1).
type Backoff struct {
	Initial, Max   time.Duration
	Factor, Jitter float64
}

// attempts are those to open one stream, as far as they decide how long the next one waits. Random
// numbers are in [0, 1).
type attempts struct {
	failures int
	ends     []time.Time // recent streams that ended after a response
}

const (
	// reconnectFloor: not more than one attempt a second (ERR-2).
	reconnectFloor = time.Second
	// A server that answers once and dies, so many times in so long, counts as failing (ERR-2).
	stormEnds   = 3
	stormWindow = 10 * time.Second
)

// failed is the delay after a stream that ended before any response (ERR-1).
func (a *attempts) failed(b *Backoff, random float64) time.Duration {
	d := float64(b.Initial) * math.Pow(b.Factor, float64(a.failures))
	if limit := float64(b.Max); d < limit {
		a.failures++
	} else {
		d = limit
	}
	return time.Duration(d * (1 + b.Jitter*(2*random-1)))
}

// ended is the delay after a stream that had delivered a response: a random one of at most a
// second, at least a second after the last attempt, unless such ends come too often (ERR-2).
func (a *attempts) ended(b *Backoff, now, attempt time.Time, random float64) time.Duration {
	a.ends = append(slices.DeleteFunc(a.ends, func(at time.Time) bool { return now.Sub(at) >= stormWindow }), now)
	if len(a.ends) >= stormEnds {
		return a.failed(b, random)
	}
	a.failures = 0
	return max(time.Duration(random*float64(reconnectFloor)), attempt.Add(reconnectFloor).Sub(now))
}

// Back says that an entry answers another group again: nobody has to back off from it any
// more, except to those whom it has refused. They do not all come at once (ERR-1).
func (c *Core) Back(entry int, now time.Time) {
	e := &c.entries[entry]
	soon := func(s *slot) {
		if !s.openAt.IsZero() && !s.refused {
			s.openAt = earlier(s.openAt, latest(c.soon(now), s.attempt.Add(reconnectFloor)))
		}
	}
	switch {
	case entry < c.current:
		soon(&e.probe)
	case entry == c.current:
		soon(&c.main)
		soon(&c.aux)
	}
	if entry != c.current || !c.main.refused {
		e.attempts, e.notBefore = attempts{}, time.Time{}
	}
}
