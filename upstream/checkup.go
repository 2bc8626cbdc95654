package upstream

import "github.com/xds-relay/xds-relay/upstream/session"

// reply is what came of asking.
type reply uint8

const (
	replyUnasked     reply = iota // the question could not be put, or the connection broke
	replyNone                     // nothing, in time
	replyUnavailable              // that it cannot be reached: a proxy may say so of the control plane
	replyOther                    // anything else will do
)

// refusals is after how many checks that said UNAVAILABLE an entry is not asked again.
const refusals = 3

// checkups are what an entry has made of checks.
type checkups struct {
	refused  int  // UNAVAILABLE, in a row
	answered bool // some other way, ever
	off      bool // there is no use in asking
}

// judge says what a reply means. answered is whether its connection has ever answered
// otherwise than with UNAVAILABLE, messages whether responses came on it meanwhile. off:
// it is the one after which checks are off.
func (k *checkups) judge(r reply, answered *bool, messages bool) (v session.Verdict, off bool) {
	switch r {
	case replyNone:
		k.refused = 0
		return session.Silent, false
	case replyOther:
		k.refused, k.answered, *answered = 0, true, true
		return session.There, false
	case replyUnavailable:
		k.refused++
		off = k.refused == refusals && !k.answered && !k.off
		k.off = k.off || off
		if *answered && !messages {
			return session.Silent, off
		}
	}
	return session.Unclear, off
}
