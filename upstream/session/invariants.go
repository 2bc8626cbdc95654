package session

import (
	"fmt"
	"maps"
	"time"

	"github.com/xds-relay/xds-relay/fanout"
)

// Broken returns the invariants of the Core that do not hold, for tests.
func (c *Core) Broken(now time.Time) (broken []string) {
	must := func(holds bool, format string, a ...any) {
		if !holds {
			broken = append(broken, fmt.Sprintf(format, a...))
		}
	}
	wanted := c.lanes()
	must(maps.Equal(wanted, c.hub.Lanes()), "wanted are %v, and should be %v", wanted, c.hub.Lanes())
	for lane := range wanted {
		s, _ := c.carrier(lane)
		parked := c.main.open() && c.trials.parked(lane.Type)
		must(s != nil || c.loose[lane] || parked, "%v is wanted, on no stream, and not to be placed", lane)
	}
	for lane := range c.loose {
		must(wanted[lane], "%v is to be placed, and not wanted", lane)
	}
	for lane := range c.unavailable {
		must(wanted[lane], "%v was told to be unavailable, and is not wanted", lane)
	}
	for t := range c.both {
		must(wanted[fanout.Lane{Type: t}] && wanted[fanout.Lane{Type: t, Wildcard: true}], "both lanes of %s are said to be wanted", t)
	}
	for s := range c.openSlots() {
		for _, l := range s.stream.lanes {
			a := &s.stream.awake
			at, clock := c.laneAt(s, l, now), a.clock.Of(l)
			must(a.lanes[l] || earlier(clock, at).Equal(clock), "%v has something to do at %v, and is asleep until %v", l.lane, at, clock)
			must(a.writable.lanes[l] || !l.writes(), "%v has something to write, and nobody looks", l.lane)
			must(a.held || !l.held, "%v is held, and nobody looks", l.lane)
		}
	}
	return broken
}
