package fanout

import (
	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
)

// silence is what upstream's silence about names of a type means: on which stream it is an answer, and
// when nothing vouches for it (MISS-3, MISS-4).
type silence struct {
	named *namedLane
	// mute are names that became Absent by the timer of a stream which had carried nothing of
	// the type, and that stream.
	mute map[string]uint64
	// refused are names over which an error lies, with the stream on which it came: only to
	// that stream it is an answer.
	refused map[string]uint64
}

var unanswered = &statuspb.Status{
	Code:    cache.Unavailable,
	Message: "xds-relay: upstream did not answer for this name in time",
}

// refuse notes on which stream an error came.
func (s *silence) refuse(name string, stream uint64) {
	if s.refused == nil {
		s.refused = make(map[string]uint64)
	}
	s.refused[name] = stream
}

// of: upstream has said nothing of a name on its own lane, not even an error on this
// stream. What the wildcard lends meanwhile is no answer: it may be gone tomorrow. Nor is
// what was left when it was given up.
func (s *silence) of(name string, stream uint64) (cache.ID, bool) {
	id, ok := s.named.Find(name)
	if !ok || s.named.Answer(id).Error != nil && s.refused[name] == stream {
		return id, false
	}
	return id, s.named.x.loans.has(name) || s.named.x.loans.inherits(name) || !s.named.Answered(id)
}

// missing takes in that the timer of a name has run out on a stream, which may be mute: it
// has carried nothing of the type. absent: the name is to become so.
func (s *silence) missing(name string, stream uint64, mute bool) (absent bool) {
	if d := &s.named.doubts; d.since(name, stream) {
		if d.suspects(name, stream) {
			d.overdue[name] = struct{}{}
		}
		return false // it exists, or may
	}
	id, silent := s.of(name, stream)
	if silent && !s.named.x.shown.has(name, stream) {
		if mute && !s.named.x.answers.lent(id) {
			if s.mute == nil {
				s.mute = make(map[string]uint64)
			}
			s.mute[name] = stream
		}
		return true
	}
	if !mute {
		s.vouched(name)
	} else if _, was := s.mute[name]; was {
		s.mute[name] = stream
	}
	return false
}

// hears takes in what an Update says of names whose timers have run out on a mute stream: it
// speaks of them, or the stream turns out to speak of the type.
func (s *silence) hears(u *cache.Update) {
	for _, r := range u.Set {
		delete(s.mute, r.Name)
	}
	for _, name := range u.Removed {
		s.vouched(name)
	}
	for _, e := range u.Errors {
		if cache.Resolves(e.Status) {
			s.vouched(e.Name)
		}
	}
	for _, r := range u.Negative {
		for name := range names(r) {
			s.vouched(name)
		}
	}
	if u.First || len(u.Set)+len(u.Removed)+len(u.Errors)+len(u.Kept)+len(u.Negative) > 0 {
		for name, stream := range s.mute {
			if stream == u.Stream {
				s.vouched(name)
			}
		}
	}
}

// vouched: a name that was mute, if it was, is Absent for those who brought it, too.
func (s *silence) vouched(name string) {
	id, ok := s.named.Find(name)
	if _, mute := s.mute[name]; mute && ok {
		s.named.x.marks.mark(id, again)
	}
	delete(s.mute, name)
}

// forget drops what is known of a name.
func (s *silence) forget(name string) {
	delete(s.mute, name)
	delete(s.refused, name)
}
