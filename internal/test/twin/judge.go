package twin

import (
	"fmt"
	"maps"
	"time"
)

// Checker is the judge. It reads all messages, one at a time, and notes what breaks G1 to G5 (ARCHITECTURE.md),
// ORDER-2 or ORDER-3 (protocol.md), and at the end who does not hold what upstream has. What upstream has it
// knows from the control planes themselves, and what upstream has said from its responses (history.go). How
// the relay does its work it neither knows nor judges.
type Checker struct {
	settings Settings
	planes   []*controlPlane
	bodies   map[string]content // all that ever was sent, by wire bytes
	live     bool               // over gRPC: what a control plane hears when it wakes was said since it hung

	now    time.Time
	round  int // how often somebody has said something to the relay, or time has passed
	events int // how many there were so far

	// What upstream has and has said. The events are by type and name.
	world     map[string]map[string]int       // when it last appeared or went, in a world or by what upstream said, or did not say
	unnamed   map[string]map[string]int       // when its aliases last changed
	said      map[string]map[string]int       // when upstream last said something else of it than before
	limited   map[string]map[string]time.Time // until when it was said to be good, by name, or wildcard and name, in any life of the relay; zero: for good
	moved     map[string]int                  // by type: when the interest in the wildcard last changed upstream
	lanes     map[string]map[bool]*lane       // by type and whether by wildcard; of this life of the relay
	streams   map[int]*relayStream
	used      map[int]bool // control planes that this life of the relay has had a stream to
	hungSince map[int]time.Time

	clients map[int]*clientState

	// excused counts how often each leniency was used (lenient.go).
	excused map[leniency]int

	// Violations, each beginning with the id of what is broken.
	Violations []string
}

func newChecker(s Settings, planes []*controlPlane) *Checker {
	c := &Checker{
		settings: s, planes: planes, bodies: planes[0].bodies, clients: map[int]*clientState{}, hungSince: map[int]time.Time{}, excused: map[leniency]int{},
		world: map[string]map[string]int{}, unnamed: map[string]map[string]int{}, said: map[string]map[string]int{}, limited: map[string]map[string]time.Time{},
	}
	for _, k := range kinds {
		c.world[k.name], c.unnamed[k.name], c.said[k.name] = map[string]int{}, map[string]int{}, map[string]int{}
		c.limited[k.name] = map[string]time.Time{}
	}
	c.relayStarted()
	return c
}

func (c *Checker) fail(rule, format string, a ...any) {
	c.Violations = append(c.Violations, rule+": "+fmt.Sprintf(format, a...))
}

// relayStarted notes that a relay has begun: it has no streams, and upstream has told it nothing.
func (c *Checker) relayStarted() {
	c.lanes, c.streams, c.used, c.moved = map[string]map[bool]*lane{}, map[int]*relayStream{}, map[int]bool{}, map[string]int{}
	for _, k := range kinds {
		c.lanes[k.name] = map[bool]*lane{false: newLane(), true: newLane()}
	}
}

// heard notes that the relay was sent something: what it sends from now on goes in another go (ORDER-2).
func (c *Checker) heard() { c.round++ }

// event is the number of what happens now.
func (c *Checker) event() int {
	c.events++
	return c.events
}

// worldChanged notes what of a control plane's world was not there before, or has gone, or has other aliases.
func (c *Checker) worldChanged(k kind, before, after map[string]Resource) {
	now, all := c.event(), maps.Clone(before)
	maps.Copy(all, after)
	for name := range all {
		was, had := before[name]
		is, has := after[name]
		if had != has {
			c.world[k.name][name] = now
		}
		lost, gained := beyond(was.Aliases, is.Aliases), beyond(is.Aliases, was.Aliases)
		if len(lost)+len(gained) > 0 {
			c.unnamed[k.name][name] = now
		}
		for _, alias := range append(lost, gained...) {
			c.world[k.name][alias] = now
		}
	}
}
