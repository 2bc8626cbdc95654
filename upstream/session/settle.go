package session

import (
	"strings"
	"time"

	"github.com/xds-relay/xds-relay/internal/hop"
)

// settleState decides when a wildcard's set is complete. Delta does not mark the end of a set. It is
// complete when, after the first response to the subscribe, the server's own chunk counter says so or
// nothing new has come for Config.Settle. No timer completes a set without a response (RECON-16).
//
// Most servers send a set in one response, and then a client would wait for nothing. So a set that has come in one
// response so far is sent to clients before it is known to be complete, the sooner the more is known of the server.
// What a client has brought, and what another generation has left here, is removed only once the set is complete.
type settleState struct {
	waiting bool      // subscribed, and not complete yet
	first   time.Time // when the first response was applied
	at      time.Time // when the set is complete without another response; zero: never
	early   time.Time // when to send what has come; zero: not before at
	split   bool      // another response has added to the first one
}

// The share of Settle after which a set that came in one response is sent, and how large that may be.
const (
	shareWhole, largestWhole     = 10, 1 << 20 // from a server that is known to send sets whole
	shareUnknown, largestUnknown = 5, 64 << 10 // from one of which nothing is known
)

// earlyAfter is how long after a first response of a size a set may be sent; ok: at all.
func earlyAfter(as Habit, size int, settle time.Duration) (after time.Duration, ok bool) {
	switch as {
	case HabitWhole:
		return settle / shareWhole, size <= largestWhole
	case HabitUnknown:
		return settle / shareUnknown, size < largestUnknown
	default:
		return 0, false
	}
}

// response handles a response on a lane that waits, and reports whether it completes the set.
func (s *settleState) response(d *Response, chunks Chunks, c *Config) (complete bool) {
	complete = d.isLast(chunks, c)
	s.waiting = !complete
	return complete
}

// isLast reports whether a response is known to be the last one of those that carry a set.
func (d *Response) isLast(chunks Chunks, c *Config) bool {
	switch {
	case d.sotw: // a SotW response has the whole set
		return true
	case chunks == ChunksRelay:
		return hop.Last(d.Nonce)
	case chunks == ChunksDiderot:
		return strings.HasSuffix(d.Nonce, "00000000")
	}
	return c.Settle == 0
}

// applied starts the wait for more responses, or prolongs it if this one added a name. The Hub
// already has the response, so that the end of the wait cannot overtake it.
func (s *settleState) applied(d *Response, as Habit, chunks Chunks, c *Config, now time.Time) {
	if !s.waiting || chunks != ChunksNone {
		return
	}
	first := s.first.IsZero()
	switch after, ok := earlyAfter(as, d.size(), c.Settle); {
	case !first && !d.adds:
		return
	case !first:
		s.split, s.early = true, time.Time{}
	case ok:
		s.first, s.early = now, now.Add(after)
	default:
		s.first = now
	}
	s.at = now.Add(c.Settle)
	if limit := s.first.Add(c.SettleCap); s.at.After(limit) {
		s.at = limit
	}
}

// tick reports, each once, that the set may be sent, and that the wait is over and the set complete.
func (s *settleState) tick(now time.Time) (early, complete bool) {
	if !s.waiting {
		return false, false
	}
	if early = due(s.early, now); early {
		s.early = time.Time{}
	}
	complete = due(s.at, now)
	s.waiting = !complete
	return early, complete
}

// deadline is when to tick, or zero.
func (s *settleState) deadline() time.Time {
	if !s.waiting {
		return time.Time{}
	}
	return earlier(s.early, s.at)
}
