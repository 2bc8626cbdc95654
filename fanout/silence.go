package fanout

import (
	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
)

// ours reports whether the relay itself has given an error in place of an answer of upstream's.
func ours(status *statuspb.Status) bool { return status == unanswered || status == leftOut }

var unanswered = &statuspb.Status{
	Code:    cache.Unavailable,
	Message: "xds-relay: upstream did not answer for this name in time",
}

// silent reports whether upstream has sent nothing for a name on its own lane, not even an error on
// this stream. A member of the wildcard's set is no answer, since it may be removed tomorrow.
func (n *namedLane) silent(name string, stream uint64) (cache.ID, bool) {
	id, ok := n.Find(name)
	if !ok || n.Answer(id).Error != nil && n.refused[name] == stream {
		return id, false
	}
	return id, !n.Answered(id)
}

// missing reports whether a name becomes Absent when its timer has run out on a stream.
func (n *namedLane) missing(name string, stream uint64) bool {
	_, silent := n.silent(name, stream)
	exists := n.faults.cameOn(stream, name) || n.x.unstored.has(name, stream)
	return silent && !exists && !n.askedAgain(name) // WILD-11
}
