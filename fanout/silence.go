package fanout

import (
	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
)

// silence is what upstream's silence about names of a type proves: for which stream it is an
// answer, and when it proves too little (MISS-3, MISS-4).
type silence struct {
	named *namedLane
	// mute are the names that became Absent by the timer of a stream that had carried nothing of
	// the type, with that stream.
	mute map[string]uint64
	// refused are the names that upstream has answered with an error, with the stream on which it
	// came. The error is an answer only on that stream.
	refused map[string]uint64
}

// ours reports whether the relay itself has given an error in place of an answer of upstream's.
func ours(status *statuspb.Status) bool { return status == unanswered || status == leftOut }

var unanswered = &statuspb.Status{
	Code:    cache.Unavailable,
	Message: "xds-relay: upstream did not answer for this name in time",
}

// of reports whether upstream has sent nothing for a name on its own lane, not even an error on
// this stream. A member of the wildcard's set is no answer, since it may be removed tomorrow.
func (s *silence) of(name string, stream uint64) (cache.ID, bool) {
	id, ok := s.named.Find(name)
	if !ok || s.named.Answer(id).Error != nil && s.refused[name] == stream {
		return id, false
	}
	return id, !s.named.Answered(id)
}

// missing notes that the timer of a name has run out on a stream. mute: the stream has carried
// nothing of the type. absent reports whether the name becomes Absent.
func (s *silence) missing(name string, stream uint64, mute bool) (absent bool) {
	if d := &s.named.doubts; d.since(name, stream) {
		if d.mayBeHidden == nil {
			d.mayBeHidden = make(map[string]uint64)
		}
		d.mayBeHidden[name] = stream
		return false // it exists, or may
	}
	id, silent := s.of(name, stream)
	if silent && s.named.askedAgain(name) {
		return false // WILD-11
	}
	if silent && !s.named.x.unstored.has(name, stream) {
		if mute && !s.named.x.answers.fallsBack(id) {
			s.mute[name] = stream
		}
		return true
	}
	if !mute {
		s.unmute(name)
	} else if _, was := s.mute[name]; was {
		s.mute[name] = stream
	}
	return false
}

// observe notes what an Update says of names whose timers ran out on a mute stream: they are no
// longer mute if it has an answer for them, or if it shows that their stream carries the type.
func (s *silence) observe(u *cache.Update) {
	for _, name := range answered(u) {
		s.unmute(name)
	}
	if u.First || len(u.Set)+len(u.Removed)+len(u.Errors)+len(u.Kept)+len(u.Negative) > 0 {
		for name, stream := range s.mute {
			if stream == u.Stream {
				s.unmute(name)
			}
		}
	}
}

// unmute makes a name Absent for the clients that came with a copy, too, if it was mute.
func (s *silence) unmute(name string) {
	id, ok := s.named.Find(name)
	if _, mute := s.mute[name]; mute && ok {
		s.named.x.marks.mark(id, recheck)
	}
	delete(s.mute, name)
}
