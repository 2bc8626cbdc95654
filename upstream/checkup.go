package upstream

import "github.com/xds-relay/xds-relay/upstream/session"

// reply is the outcome of a health check.
type reply uint8

const (
	replyUnasked     reply = iota // the check could not be sent, or the connection broke
	replyNone                     // no answer in time
	replyUnavailable              // UNAVAILABLE: a proxy may say so of the control plane
	replyOther                    // any other answer
)

// refusals is the number of UNAVAILABLE answers after which an entry is not checked any more.
const refusals = 3

// checkups sums up the checks of an entry.
type checkups struct {
	refused  int  // UNAVAILABLE answers in a row
	answered bool // there was another answer before
	off      bool // checks are off
}

// judge returns the verdict of a check. answered says whether its connection has ever answered
// other than with UNAVAILABLE, and messages whether responses came during the check. off means
// that this check turns checks off.
func (k *checkups) judge(r reply, answered *bool, messages bool) (v session.CheckResult, off bool) {
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
