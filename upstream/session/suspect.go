package session

import (
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// A control plane may end the whole stream because of one type that it does not know. Then all
// other types get no updates either, again after every reconnect (H-39). The relay finds the
// type by experiment. A type is a suspect if it was first asked for within a second of such an
// end, and had no answer. The next stream asks for all other types first, and then for one
// suspect at a time. If the stream ends on a suspect again, the suspect is convicted, and asked
// for on a stream of its own from then on (its quarantine).

// trial is how long a stream must outlive a question to show that the server accepts it.
const trial = time.Second

// convictAt is how many strikes convict a type.
const convictAt = 2

// suspects has the types that are suspected or convicted. It outlives streams.
type suspects struct {
	strikes map[cache.TypeURL]int // ends of streams for which a type may be to blame
	// tried is when a suspect was last asked for, so that they take turns.
	tried       map[cache.TypeURL]time.Time
	quarantined map[cache.TypeURL]*quarantine
}

// quarantine is the state of a convicted type. It outlives the type's clients, so that clients
// that come back do not hasten the next attempt.
type quarantine struct {
	message   string // of the last end
	convicted time.Time
	attempts  attempts
	notBefore time.Time // when the next attempt is due; zero: no solo stream has ended yet
}

// due is the time from which the type may be asked for alone.
func (q *quarantine) due() time.Time { return latest(q.convicted, q.notBefore) }

// outlasts reports whether the type is not to be asked for at a time, or has not been alone yet.
func (q *quarantine) outlasts(at time.Time) bool {
	return q.notBefore.IsZero() || q.notBefore.After(at)
}

func newSuspects() *suspects {
	return &suspects{
		strikes:     make(map[cache.TypeURL]int),
		tried:       make(map[cache.TypeURL]time.Time),
		quarantined: make(map[cache.TypeURL]*quarantine),
	}
}

func (s *suspects) suspected(t cache.TypeURL) bool { return s.strikes[t] > 0 }

// convicted reports whether a type is in quarantine.
func (s *suspects) convicted(t cache.TypeURL) bool { return s.quarantined[t] != nil }

func (s *suspects) clear(t cache.TypeURL) {
	delete(s.strikes, t)
	delete(s.tried, t)
}

// blame judges a stream that the server ended, and returns who is convicted, or pardoned, if any. At
// most so many are convicted at the same time.
// A stream convicts nobody if it had no response and outlived no question by trial: the server
// may end every stream.
func (s *suspects) blame(sl *slot, message string, most int, now time.Time) (judged []Resolution) {
	sound := sl.answered
	var blamed []cache.TypeURL
	for t, l := range sl.stream.lanes {
		switch {
		case !l.awaits():
		case l.outlived(now):
			sound = true
		default:
			blamed = append(blamed, t)
		}
	}
	for _, t := range blamed {
		s.strikes[t]++
	}
	if len(blamed) != 1 || !sound || s.strikes[blamed[0]] < convictAt {
		return nil
	}
	return s.convict(blamed[0], message, most, now)
}

// convict puts a type in quarantine. At most so many are there at the same time: one may be pardoned.
func (s *suspects) convict(t cache.TypeURL, message string, most int, now time.Time) (judged []Resolution) {
	if len(s.quarantined) >= most {
		judged = append(judged, Resolution{Type: s.pardon()})
	}
	s.quarantined[t] = &quarantine{message: message, convicted: now}
	s.clear(t)
	return append(judged, Resolution{t, true})
}

// pardon makes room for another convicted type. It drops the one whose next attempt has been due
// for longest, which nobody has asked for since.
func (s *suspects) pardon() (oldest cache.TypeURL) {
	for t, q := range s.quarantined {
		if o := s.quarantined[oldest]; o == nil || q.due().Before(o.due()) {
			oldest = t
		}
	}
	delete(s.quarantined, oldest)
	return oldest
}

// forget clears suspects that nobody wants any more. Convicted types stay.
func (s *suspects) forget(wanted map[fanout.Lane]bool) {
	for t := range s.strikes {
		if !wants(wanted, t) {
			s.clear(t)
		}
	}
}

// survivors clears the suspects that the stream has outlived. When no other question is open, it
// lets the stream ask for the next suspect.
func (s *suspects) survivors(sl *slot, now time.Time) {
	if len(s.strikes) == 0 && !sl.stream.awake.held {
		return
	}
	var held *laneState
	busy := false
	sl.stream.awake.held = false
	for _, l := range sl.stream.inOrder() {
		switch {
		case l.held:
			sl.stream.awake.held = true
			if held == nil || s.tried[l.lane.Type].Before(s.tried[held.lane.Type]) {
				held = l
			}
		case l.answered:
		case l.outlived(now):
			s.clear(l.lane.Type)
		default:
			busy = true
		}
	}
	if held != nil && !busy {
		held.held = false
		sl.stream.wake(held)
		s.tried[held.lane.Type] = now
	}
}
