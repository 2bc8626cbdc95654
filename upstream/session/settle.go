package session

import (
	"strings"
	"time"

	"github.com/xds-relay/xds-relay/internal/hop"
)

// settleState decides when a wildcard's set is complete. Delta does not mark the end of a set. It is
// complete when, after the first response to the subscribe, the server's own chunk counter says so or
// nothing new has come for Config.Settle. No timer completes a set without a response (RECON-16).
type settleState struct {
	waiting bool      // subscribed, and not complete yet
	first   time.Time // when the first response was applied
	at      time.Time // when the set is complete without another response; zero: never
}

// response handles a response on a lane that waits, and reports whether it completes the set.
func (s *settleState) response(d *Response, chunks Chunks, c *Config) (complete bool) {
	switch {
	case d.sotw: // a SotW response has the whole set
		complete = true
	case chunks == ChunksRelay:
		complete = hop.Last(d.Nonce)
	case chunks == ChunksDiderot:
		complete = strings.HasSuffix(d.Nonce, "00000000")
	default:
		complete = c.Settle == 0
	}
	s.waiting = !complete
	return complete
}

// applied starts the wait for more responses, or prolongs it if this one added a name. The Hub
// already has the response, so that the end of the wait cannot overtake it.
func (s *settleState) applied(adds bool, chunks Chunks, c *Config, now time.Time) {
	if !s.waiting || chunks != ChunksNone {
		return
	}
	first := s.first.IsZero()
	if first {
		s.first = now
	}
	if adds || first {
		s.at = now.Add(c.Settle)
		if limit := s.first.Add(c.SettleCap); s.at.After(limit) {
			s.at = limit
		}
	}
}

// tick reports, once, that the wait is over and the set complete.
func (s *settleState) tick(now time.Time) (complete bool) {
	if !due(s.deadline(), now) {
		return false
	}
	s.waiting = false
	return true
}

// deadline is when to tick, or zero.
func (s *settleState) deadline() time.Time {
	if !s.waiting {
		return time.Time{}
	}
	return s.at
}
