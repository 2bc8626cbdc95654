package downstream

import (
	"slices"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Clusters that go while others come stay in a SotW client's set until what referred to
// them has been turned to those (ORDER-2): the set in which these come still lists them,
// and the one after its ACK does not. Delta has removals for that (succeeds).

// outgoing is what a full-state set still lists of what is gone.
type outgoing struct {
	notes bool              // what is sent is remembered for it: Clusters on an aggregated stream
	keeps bool              // it does: there is what refers to them on the stream
	waits bool              // something that refers to them waits just now
	last  []*cache.Resource // the set that was sent last
	gone  []string          // of it, since
	stays []string          // in it, though gone before
}

// list is a set that is about to be sent, with what stays in it. What stayed in the last one
// too does so only while something waits, or that set is not acknowledged.
func (o *outgoing) list(v fanout.View, resources []*cache.Resource, acked bool) []*cache.Resource {
	gone := o.gone
	if o.waits || !acked {
		gone = append(gone, o.stays...)
	}
	o.gone, o.stays = nil, nil
	subscribed, _ := v.Wildcard()
	all := resources
	for _, r := range o.last {
		if !slices.Contains(gone, r.Name) || r.DoNotCache || v.Resource(r.Name) != nil || v.Expired(r.Name) {
			continue
		}
		if _, named := v.Lookup(r.Name); named || subscribed {
			all = append(slices.Clip(all), r)
			o.stays = append(o.stays, r.Name)
		}
	}
	return all
}

// told notes the set that is sent.
func (o *outgoing) told(resources []*cache.Resource) {
	if !o.keeps {
		o.gone, o.stays = nil, nil
	}
	if o.last = nil; o.notes {
		o.last = resources
	}
}
