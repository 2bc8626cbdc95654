package upstream

import (
	"time"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Effect is something learned, to be carried out in order and outside of all
// locks.
type Effect struct {
	Lane fanout.Lane
	// Update is to be applied to the Hub.
	Update *cache.Update
	// Expire is the time up to which resources expire; zero: none does (TTL-2).
	Expire time.Time
	// Availability: the Hub is to be told Status, nil for available (ERR-7).
	Availability bool
	Status       *statuspb.Status
	// Suspect: the type was convicted or, if false, acquitted.
	Conviction bool
	Suspect    bool
	// Identifier of the control plane, if it is news.
	Identifier string
	// Drop names a response or resource that was not used, for a counter.
	Drop string
	// Notice is for the log, about an Entry.
	Notice, Entry string
}

// Apply carries an effect out. held: a part of it was held back (H-22).
func (e Effect) Apply(hub *fanout.Hub) (held fanout.Held) {
	switch {
	case e.Update != nil:
		held = hub.Apply(e.Lane, e.Update)
	case !e.Expire.IsZero():
		hub.ExpireResources(e.Expire)
	case e.Availability:
		hub.SetUnavailable(e.Lane, e.Status)
	case e.Conviction:
		hub.SetSuspect(e.Lane.Type, e.Suspect)
	case e.Identifier != "":
		hub.SetIdentifier(e.Identifier)
	}
	return held
}
