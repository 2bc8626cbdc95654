package fanout

import (
	"time"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
)

// Refuse stands in for the upstream of a Hub that has none: each wanted name without an answer gets
// this error, and names that nobody wants any more are forgotten. A wildcard is never complete
// (NODE-14). Refuse must be called after each change of interest.
func Refuse(h *Hub, status *statuspb.Status, now time.Time) {
	changes, _ := h.Changes(now, func(Lane) (c Carrier, carried bool) { return c, false })
	for lane, interest := range changes {
		if lane.Wildcard {
			continue
		}
		u := cache.Update{At: now}
		for _, name := range interest.Want {
			u.Errors = append(u.Errors, cache.Error{Name: name, Status: status})
		}
		h.Apply(lane, &u)
	}
}
