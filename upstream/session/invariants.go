package session

import (
	"fmt"
	"maps"

	"github.com/xds-relay/xds-relay/fanout"
)

// Broken returns the invariants of the Core that do not hold, for tests.
func (c *Core) Broken() (broken []string) {
	must := func(holds bool, format string, a ...any) {
		if !holds {
			broken = append(broken, fmt.Sprintf(format, a...))
		}
	}
	wanted := c.lanes()
	must(maps.Equal(wanted, c.hub.Lanes()), "wanted are %v, and should be %v", wanted, c.hub.Lanes())
	for lane := range wanted {
		s, _ := c.carrier(lane)
		must(s != nil || c.loose[lane], "%v is wanted, on no stream, and not to be placed", lane)
	}
	for lane := range c.loose {
		must(wanted[lane], "%v is to be placed, and not wanted", lane)
	}
	for lane := range c.told {
		must(wanted[lane], "%v was told to be unavailable, and is not wanted", lane)
	}
	for t := range c.both {
		must(wanted[fanout.Lane{Type: t}] && wanted[fanout.Lane{Type: t, Wildcard: true}], "both lanes of %s are said to be wanted", t)
	}
	return broken
}
