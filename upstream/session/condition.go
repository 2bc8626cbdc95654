package session

import (
	"slices"

	"github.com/xds-relay/xds-relay/fanout"
)

// Condition is whether a control plane keeps a group current: whether what the group's
// clients hold, and wait for, is as the control plane has it. It is a closed set, fit for a
// metric label.
type Condition string

const (
	// Standby: another entry of the list is in use, and nothing is known against this one.
	Standby Condition = "standby"
	// Idle: no client subscribes to anything, so that nothing is asked.
	Idle Condition = "idle"
	// UpToDate: it has answered for all that clients subscribe to, on streams that work.
	UpToDate Condition = "current"
	// Waiting: it was asked and has not answered yet, or the first attempt to reach it is
	// under way.
	Waiting Condition = "waiting"
	// Mute: it is there, and says nothing of a type that clients wait for.
	Mute Condition = "silent"
	// Refused: it ends the streams of the group, or those that ask for a type.
	Refused Condition = "refused"
	// Down: it cannot be reached, or has stopped answering.
	Down Condition = "down"
)

// Conditions are all there are, from good to bad.
func Conditions() []Condition {
	return []Condition{Standby, Idle, UpToDate, Waiting, Mute, Refused, Down}
}

// Fails reports whether clients wait for, or hold, what is not kept current.
func (c Condition) Fails() bool { return c == Waiting || c == Mute || c == Refused || c == Down }

// worse is the worse of two.
func (c Condition) worse(other Condition) Condition {
	all := Conditions()
	return all[max(slices.Index(all, c), slices.Index(all, other))]
}

// condition is that of the entry in use: the worst of its lanes.
func (c *Core) condition() Condition {
	worst := Idle
	for _, lane := range c.hub.Lanes() {
		// What only lingers is asked for, and nobody misses it. Of a type that is not to be
		// asked for clients are told.
		if c.hub.On(lane).Subscribed() && c.Allowed(lane.Type) {
			worst = worst.worse(c.laneCondition(lane))
		}
	}
	return worst
}

func (c *Core) laneCondition(lane fanout.Lane) Condition {
	s := c.carrier(lane)
	if s == nil {
		return c.uncarried(lane)
	}
	if !s.failingSince().IsZero() {
		return s.failingCondition()
	}
	if c.silent[lane.Type] == lane {
		return Mute
	}
	if l := s.stream.lanes[lane.Type]; !l.answered && !c.hub.On(lane).Heard() {
		return Waiting
	}
	if lane.Wildcard && !c.hub.Of(lane.Type).Synced() {
		return Waiting // some of it is here, and clients wait for all of it (RECON-16)
	}
	return UpToDate
}

// uncarried is the condition of a lane that is on no stream.
func (c *Core) uncarried(lane fanout.Lane) Condition {
	if _, bad := c.suspects.quarantined[lane.Type]; bad {
		return Refused
	}
	if c.main.outage.since.IsZero() {
		return Waiting // nothing has failed: a stream for it is being opened
	}
	return c.main.failingCondition()
}

func (s *slot) failingCondition() Condition {
	if s.outage.denied || s.role == Solo {
		return Refused
	}
	return Down
}

// idleCondition is that of an entry that is not in use.
func (e *entry) idleCondition() Condition {
	if e.failed.After(e.heard) && !e.probe.answered {
		return Down
	}
	return Standby
}
