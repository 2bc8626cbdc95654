package session

import (
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// A control plane may end the whole stream because of one type it does not know,
// and with it every other type's updates, again after every reconnect (H-39).
// Which type it was is found by experiment: a type that was first asked for within
// a second of such an end, and had no answer, is a suspect. The next stream asks
// for everything else first, and then for one suspect at a time. The one it dies
// on is convicted, and asked for on a stream of its own from then on.

// trial is how long a stream must outlive a question for it not to have been its
// end.
const trial = time.Second

// convictAt is how many ends in a row it takes.
const convictAt = 2

// suspects is what is held against types. It outlives streams.
type suspects struct {
	strikes map[cache.TypeURL]int
	// tried is when a suspect was last asked for, so that they take turns.
	tried       map[cache.TypeURL]time.Time
	quarantined map[cache.TypeURL]*quarantine
	most        int // of these
}

// quarantine is a convicted type. It outlives the type's clients, so that those who
// come back do not hurry its next attempt.
type quarantine struct {
	message   string    // the control plane's last word on it
	convicted time.Time // when
	backoff   Backoff
	notBefore time.Time // zero: it has not been asked for alone yet
}

// due is since when, or when, it may be asked for alone.
func (q *quarantine) due() time.Time { return latest(q.convicted, q.notBefore) }

func newSuspects(most int) *suspects {
	return &suspects{
		most:        most,
		strikes:     make(map[cache.TypeURL]int),
		tried:       make(map[cache.TypeURL]time.Time),
		quarantined: make(map[cache.TypeURL]*quarantine),
	}
}

func (s *suspects) suspected(t cache.TypeURL) bool { return s.strikes[t] > 0 }

func (s *suspects) clear(t cache.TypeURL) {
	delete(s.strikes, t)
	delete(s.tried, t)
}

// blame judges a stream that the server ended. It returns the convicted type, if
// there is one. A stream that answered nothing, and did not last either, is no
// evidence: it would have ended whatever it was asked.
func (s *suspects) blame(sl *slot, message string, b Backoff, now time.Time) (convicted cache.TypeURL, ok bool) {
	sound := sl.answered
	var blamed []cache.TypeURL
	for t, l := range sl.stream.lanes {
		switch {
		case l.first || l.answered:
		case now.Sub(l.askedAt) < trial:
			blamed = append(blamed, t)
		default:
			sound = true
		}
	}
	for _, t := range blamed {
		s.strikes[t]++
	}
	if len(blamed) != 1 || !sound || s.strikes[blamed[0]] < convictAt {
		return "", false
	}
	t := blamed[0]
	if len(s.quarantined) >= s.most {
		s.pardon()
	}
	s.quarantined[t] = &quarantine{message: message, convicted: now, backoff: b}
	s.clear(t)
	return t, true
}

// pardon makes room for another convicted type: the one whose next attempt has been
// due for longest goes, which is one that nobody has asked for since.
func (s *suspects) pardon() {
	var oldest cache.TypeURL
	for t, q := range s.quarantined {
		if o := s.quarantined[oldest]; o == nil || q.due().Before(o.due()) {
			oldest = t
		}
	}
	delete(s.quarantined, oldest)
}

// forget drops what is held against types that nobody wants any more, short of a
// conviction.
func (s *suspects) forget(wanted lanes) {
	for t := range s.strikes {
		if !wanted.ofType(t) {
			s.clear(t)
		}
	}
}

// survivors clears those that the stream has outlived, and once nothing else is
// open lets the next suspect be asked for.
func (s *suspects) survivors(sl *slot, now time.Time) {
	var held *laneState
	busy := false
	for _, l := range sl.stream.inOrder() {
		switch {
		case l.held:
			if held == nil || s.tried[l.lane.Type].Before(s.tried[held.lane.Type]) {
				held = l
			}
		case l.answered:
		case !l.first && now.Sub(l.askedAt) >= trial:
			s.clear(l.lane.Type)
		default:
			busy = true
		}
	}
	if held != nil && !busy {
		held.held = false
		s.tried[held.lane.Type] = now
	}
}

// earlier is the earliest of some times, where zero means never.
func earlier(times ...time.Time) (at time.Time) {
	for _, t := range times {
		if at.IsZero() || !t.IsZero() && t.Before(at) {
			at = t
		}
	}
	return at
}
