package session

import (
	"time"

	"github.com/xds-relay/xds-relay/fanout"
)

// laneState is one lane on one stream.
type laneState struct {
	lane fanout.Lane
	// gathers is the end of the time in which changes of interest are gathered into one
	// request, after the last one, unless a response of the type comes before (UP-6).
	gathers time.Time
	// more: further changes have been gathered already, and are taken next (UP-17).
	more bool
	// held means that the type is a suspect and waits for its turn (suspect.go).
	held bool
	// askedAt is when the opening request was written, which restates everything (UP-3); zero: it is
	// not written yet. answered means that a response of the type has come since.
	askedAt    time.Time
	answered   bool
	answeredAt time.Time
	// question is the number of the opening request, and lookAt when to check whether it
	// has been unanswered for too long (silence.go).
	question uint64
	lookAt   time.Time
	// mapped means that the opening request showed versions.
	mapped bool
	// sent has the names that are subscribed on this stream, with the time of the request.
	sent map[string]time.Time
	// want and drop are changes that are not written yet. A name in both is unsubscribed
	// first, and then subscribed again (UP-8).
	want, drop pending
	// restart has the names whose missing timer starts when they are asked for again (WILD-11).
	restart map[string]struct{}
	echo    echo // compares the answers with the versions of the opening request (RECON-13)
	// unanswered asks again for names without an answer (UP-19).
	unanswered unanswered

	settle settleState
	globs  globs
}

// givenUp reports whether the lane is a wildcard that was asked for, and is unsubscribed or about to be.
func (l *laneState) givenUp() bool {
	return l.lane.Wildcard && l.asked() && !l.subscribed(fanout.Wildcard)
}

// returns reports whether clients want a wildcard that was unsubscribed on this stream, or is
// about to be.
func (l *laneState) returns(i fanout.Interest) bool {
	return len(i.Want) > 0 && l.givenUp()
}

// forget deletes a name that clients have given up.
func (l *laneState) forget(name string) {
	l.want.remove(name)
	delete(l.restart, name)
	delete(l.unanswered.unsubscribed, name)
	l.unanswered.retries.remove(name)
	l.globs.forget([]string{name})
}

// asked reports whether the opening request is written.
// It is not where the stream does not carry the lane.
func (l *laneState) asked() bool { return l != nil && !l.askedAt.IsZero() }

// awaits reports whether the lane is asked for, and no response has come.
func (l *laneState) awaits() bool { return l.asked() && !l.answered }

// hasAnswer reports whether the stream carries the lane, and a response has come.
func (l *laneState) hasAnswer() bool { return l != nil && l.answered }

// outlived reports whether the stream has lasted for trial since the lane was asked for.
func (l *laneState) outlived(now time.Time) bool { return l.asked() && now.Sub(l.askedAt) >= trial }

// writes reports whether the lane has a request to write, now or when changes are gathered.
func (l *laneState) writes() bool { return !l.asked() || l.changed() }

// changed reports whether there are changes to write.
func (l *laneState) changed() bool { return l.asked() && l.drop.len()+l.want.len() > 0 }

// subscribed reports whether a name is subscribed, and no unsubscribe is pending.
func (l *laneState) subscribed(name string) bool {
	_, sent := l.sent[name]
	return sent && !l.drop.has(name)
}

// leaves reports whether a name, or the wildcard that covers it, is given up, perhaps before the
// server knows it. A name that is only asked for again is not (UP-19).
func (l *laneState) leaves(name string) bool {
	if l == nil {
		return false
	}
	if l.lane.Wildcard {
		name = fanout.Wildcard
	}
	_, again := l.unanswered.unsubscribed[name]
	return !again && !l.subscribed(name)
}

// wildcardLeft reports whether the lane was for a wildcard that is given up and not wanted again.
func (l *laneState) wildcardLeft() bool {
	return l.givenUp() && !l.want.has(fanout.Wildcard)
}

// idle reports whether nothing is subscribed, and no change is pending.
func (l *laneState) idle() bool { return l.asked() && !l.changed() && len(l.sent) == 0 }
