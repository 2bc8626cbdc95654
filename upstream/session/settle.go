package session

import (
	"strings"
	"time"

	"github.com/xds-relay/xds-relay/internal/hop"
)

// settleState decides when a wildcard's set is complete, or when all has been said of
// names that were loaded from disk. Delta has no end mark, so it is after the first
// response since the subscribe was written, once the server's own chunk counter says
// so, or nothing new has come for a while. No timer completes a set without a response
// (RECON-16).
type settleState struct {
	waiting bool // subscribed, and not complete yet
	// piecemeal: what is waited for are names, each of which may be answered by itself.
	piecemeal bool
	first     time.Time
	at        time.Time // zero: never without a response
	// blind: there was a resource without a name, which may be any: nothing is known
	// to be missing (ERR-10).
	blind bool
}

func (s *settleState) begin() { *s = settleState{waiting: true} }

// beginWarm waits for what the server has to say of names that were loaded from
// disk; no mark tells when it has said that of all of them. What its silence says of each is
// for the timer of that name (RECON-19).
func (s *settleState) beginWarm() { *s = settleState{waiting: true, piecemeal: true} }

// response takes in a response on the lane. complete: it makes the set complete.
func (s *settleState) response(d *Response, chunks Chunks, c *Config) (complete bool) {
	if !s.waiting {
		return false
	}
	s.blind = s.blind || d.Update.Hidden
	switch {
	case s.piecemeal:
	case d.sotw: // it comes in one piece
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

// applied starts the wait for more, or prolongs it if the response added a name.
// The Hub has the response by now, so that the end of the wait cannot overtake it.
func (s *settleState) applied(adds bool, chunks Chunks, c *Config, now time.Time) {
	if !s.waiting || !s.piecemeal && chunks != ChunksNone {
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

// tick reports once that the set has become complete.
func (s *settleState) tick(now time.Time) (complete bool) {
	if !s.waiting || s.at.IsZero() || s.at.After(now) {
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
