package upstream

import "time"

// quiet is how long an entry has said nothing when its next answer is news.
const quiet = 10 * time.Second

// comeback tells when an answer is news for the groups that back off from its entry:
// it is the first after all streams that were answered are gone, or after quiet
// (ERR-1). As long as no stream has failed nobody backs off, and nothing is news.
type comeback struct {
	answering int       // streams that are open, and have been answered
	last      time.Time // when something came last; zero: nothing yet
	failed    bool      // some stream has, since the last news
}

// message takes note of a response; first: it is the stream's first.
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

// ended takes note that a stream is gone, or could not be opened.
func (b *comeback) ended(answered bool) {
	b.failed = true
	if answered {
		b.answering--
	}
}
