package session

import (
	"slices"

	"github.com/xds-relay/xds-relay/fanout"
)

// Condition says whether a control plane keeps a group current: whether the resources that the
// group's clients have, and wait for, are those of the control plane. It is a closed set, so
// that it can be a metric label.
type Condition string

const (
	// Standby means that another entry is in use, and that this one did not fail last.
	Standby Condition = "standby"
	// Idle means that no client subscribes to anything.
	Idle Condition = "idle"
	// UpToDate means that the control plane has answered all types that clients subscribe to,
	// and that the streams work.
	UpToDate Condition = "current"
	// Waiting means that an answer is due, or that the first attempt to connect is under way.
	Waiting Condition = "waiting"
	// Mute means that the control plane is alive, and does not answer for a type that clients
	// wait for.
	Mute Condition = "silent"
	// Refused means that the control plane ends the group's streams, or those with one type.
	Refused Condition = "refused"
	// Down means that the control plane cannot be reached, or has stopped answering.
	Down Condition = "down"
)

// Conditions returns all conditions, from good to bad.
func Conditions() []Condition {
	return []Condition{Standby, Idle, UpToDate, Waiting, Mute, Refused, Down}
}

// Fails reports whether clients wait for resources, or have some that are not kept current.
func (c Condition) Fails() bool {
	switch c {
	case Waiting, Mute, Refused, Down:
		return true
	}
	return false
}

// condition is that of the entry in use: the worst of its lanes.
func (c *Core) condition() Condition {
	all := Conditions()
	worst := slices.Index(all, Idle)
	for lane := range c.hub.Lanes() {
		// A lane that only lingers has no clients. Those of a type that is not allowed have
		// an error.
		if c.hub.On(lane).Subscribed() && c.Allowed(lane.Type) {
			worst = max(worst, slices.Index(all, c.laneCondition(lane)))
		}
	}
	return all[worst]
}

func (c *Core) laneCondition(lane fanout.Lane) Condition {
	s, l := c.carrier(lane)
	if s == nil {
		return c.uncarried(lane)
	}
	if s.fails() {
		return s.failingCondition()
	}
	if c.silent[lane.Type] == lane {
		return Mute
	}
	if !l.answered && !c.hub.On(lane).Heard() {
		return Waiting
	}
	if lane.Wildcard && !c.hub.Of(lane.Type).Served() {
		return Waiting // all clients wait for the set (RECON-16)
	}
	return UpToDate
}

// uncarried is the condition of a lane that is on no stream.
func (c *Core) uncarried(lane fanout.Lane) Condition {
	if c.suspects.convicted(lane.Type) {
		return Refused
	}
	s := &c.main
	if tried := c.onlyTried(lane.Type); tried != nil {
		s = tried
	}
	if !s.outage.on() {
		return Waiting // nothing has failed, and a stream is being opened
	}
	return s.failingCondition()
}

func (s *slot) failingCondition() Condition {
	if s.outage.last.Kind == EndDenied || s.refusesType() {
		return Refused
	}
	return Down
}

// idleCondition is the condition of an entry that is not in use.
func (e *entry) idleCondition() Condition {
	if e.failed.After(e.heard) && !e.probe.answered {
		return Down
	}
	return Standby
}
