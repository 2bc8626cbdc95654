package session

import "github.com/xds-relay/xds-relay/fanout"

// Listing says, for logs, what a response is about. It has no bodies, so that responses without
// an ACK keep none in memory. All clients that are sent the same News share one.
func (r *Response) Listing() fanout.Listing {
	if r.News != nil && len(r.Removed) == 0 && r.News.Lists(r.Resources) {
		return r.News.Listing()
	}
	return fanout.List(r.Resources, r.Removed)
}
