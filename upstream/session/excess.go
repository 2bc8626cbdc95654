package session

import (
	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Excess is what the log gets once when a lane's resources would take more than they may.
type Excess struct {
	toEdge
	Lane  fanout.Lane
	Entry string
	// Bytes is what they would take, of at most Most.
	Bytes, Most int
}

// Excessive is the reason for which resources are dropped that would take too much.
const Excessive = "too_many_bytes"

// fits leaves out what a response brings if the lane would then take more than MaxSet, and the response is
// rejected (VALID-8). What is there is kept, and what the response removes is removed. Any name may be among
// those that are left out: they are too many to remember.
func (c *Core) fits(s *slot, l *laneState, d *Response) {
	most := c.config.MaxSet
	if most == 0 || len(d.Update.Set) == 0 {
		return
	}
	bytes, more, held := c.hub.On(l.lane).After(&d.Update)
	switch whole := d.sotw && c.hub.Properties(d.TypeURL).FullState; {
	case whole: // it replaces what is there
		bytes, more = sizes(d.Update.Set), 1
	case bytes < most-most/8:
		delete(c.excess, l.lane) // there is room again
	}
	if bytes <= most || more <= 0 {
		return
	}
	d.fault("the resources of this type would take %d bytes, and may take %d; those of this response are not used (upstream.max_set_bytes of the relay)", bytes, most)
	d.Update.Kept = append(d.Update.Kept, held...)
	d.Update.Set, d.Update.Unreadable = nil, true
	c.emit(Dropped{Reason: Excessive})
	if !c.excess[l.lane] {
		c.excess[l.lane] = true
		c.emit(Excess{Lane: l.lane, Entry: c.entryOf(s).Name, Bytes: bytes, Most: most})
	}
}

func sizes(set []cache.Received) (n int) {
	for _, r := range set {
		n += r.Size()
	}
	return n
}
