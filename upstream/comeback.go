package upstream

import "time"

// quiet is how long an entry must have sent nothing for its next response to be news.
const quiet = 10 * time.Second

// comeback decides when a response is news for the other groups, which may be backing off from
// the entry (ERR-1). It is if no open stream had a response before, or if the entry had sent
// nothing for quiet. It is not if no stream has failed since the last news.
type comeback struct {
	answering int       // open streams that have had a response
	last      time.Time // when the last response came; zero: there was none
	failed    bool      // a stream has failed since the last news
}

// message notes a response, and reports whether it is news. first means that it is the stream's
// first one.
func (b *comeback) message(first bool, now time.Time) (news bool) {
	news = b.failed && (b.answering == 0 || now.Sub(b.last) >= quiet)
	if first {
		b.answering++
	}
	if news {
		b.failed = false
	}
	b.last = now
	return news
}

// ended notes that a stream has ended, or could not be opened.
func (b *comeback) ended(answered bool) {
	b.failed = true
	if answered {
		b.answering--
	}
}
