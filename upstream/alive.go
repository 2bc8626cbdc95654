package upstream

import "time"

// Whether anybody is at the other end of a stream (protocol.md §0, "alive"). That a
// connection is open says little: a process that hangs keeps it, and so does a network
// that drops packets. A stream is alive as of a question when a message came after it,
// or a health check that began after it was answered. Silence is a verdict only from
// such a stream (MISS-3).

// liveness is what is known of one stream. It dies with the stream.
type liveness struct {
	// asked counts the questions written: requests that ask for something. proven is
	// the last of them as of which the stream is alive.
	asked, proven uint64
	// since is when the first question after that was written; zero: there is none.
	since time.Time
	// heard is when the peer last showed itself, or the stream was opened.
	heard time.Time

	// The check under way: when it was asked for, after how many questions; zero: none.
	checking time.Time
	covers   uint64
	// notBefore is when the next one may be asked for.
	notBefore time.Time
	silent    bool // what the last check said, and nothing came since
}

// question notes that something was asked, and numbers it.
func (l *liveness) question(now time.Time) uint64 {
	if l.asked == l.proven {
		l.since = now
	}
	l.asked++
	return l.asked
}

// message notes that one came.
func (l *liveness) message(now time.Time) {
	l.proven, l.since, l.heard = l.asked, time.Time{}, now
	l.notBefore, l.silent = time.Time{}, false
}

// answeredSince: the stream is alive as of a question.
func (l *liveness) answeredSince(question uint64) bool { return l.proven >= question }

// dueAt is when to ask whether anybody is there, or zero. patience is for how long
// a question may stay without any sign of life, idle for how long the stream may be
// silent if nothing is asked; zero: for ever.
func (l *liveness) dueAt(patience, idle time.Duration) (at time.Time) {
	if !l.checking.IsZero() {
		return at
	}
	if !l.since.IsZero() {
		at = l.since.Add(patience)
	}
	if idle > 0 {
		at = earlier(at, l.heard.Add(idle))
	}
	if !at.IsZero() {
		at = latest(at, l.notBefore)
	}
	return at
}

// check begins one.
func (l *liveness) check(now time.Time) { l.checking, l.covers = now, l.asked }

// checked takes in what came of it. A check that began before it was asked for, since
// another stream of the connection had asked, says nothing of what was asked later.
func (l *liveness) checked(c Check, now time.Time, again time.Duration) (silentSince time.Time) {
	asked := l.checking
	if asked.IsZero() {
		return silentSince
	}
	l.checking, l.notBefore = time.Time{}, now.Add(again)
	switch {
	case c.Begun.Before(asked): // ask once more, at once
		l.notBefore = now
	case c.Verdict == There && l.covers >= l.proven:
		l.proven, l.heard = l.covers, asked
		if l.since = (time.Time{}); l.asked > l.proven {
			l.since = asked // or later
		}
		l.notBefore, l.silent = time.Time{}, false
	case c.Verdict == Silent:
		l.silent = true
		if silentSince = asked; !l.since.IsZero() {
			silentSince = l.since
		}
	}
	return silentSince
}
