package fanout

import (
	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
)

// A SotW request lists all names of its type. Names for which the list has no room are left out of
// it, and their clients get an error in place of an answer, until there is room (UP-21). What is here
// of such a name stays: nobody has said that it is gone.

// leftOut is the error of names that are left out.
var leftOut = &statuspb.Status{
	Code:    cache.ResourceExhausted,
	Message: "xds-relay: the list of names that goes to the control plane is full; see upstream.max_request_bytes",
}

// leaveOut lays that error over the names that an Update says are left out.
func (n *namedLane) leaveOut(u *cache.Update) {
	for _, name := range u.LeftOut {
		if id, ok := n.Find(name); ok && n.Pinned(name) {
			delete(n.refused, name) // an answer from before says nothing of a name that is not asked for
			if n.Fail(id, leftOut) {
				n.x.marks.mark(id, failure)
			}
		}
	}
}

// leavesOut reports whether a name is left out.
func (n *namedLane) leavesOut(name string) bool {
	id, ok := n.Find(name)
	return ok && n.Answer(id).Error == leftOut
}

// letIn notes that upstream has been asked for a name, which clients wait for from now on if it was
// left out before.
func (n *namedLane) letIn(id cache.ID) {
	if n.Answer(id).Error == leftOut {
		n.Excuse(id)
	}
}
