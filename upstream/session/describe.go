package session

import (
	"maps"
	"slices"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// State is how one group and its control planes get on, for people.
type State struct {
	// Node and Cluster are the id and the cluster of the node that the group shows.
	Node, Cluster string
	// Shown is that node. Nobody may change it.
	Shown *core.Node
	// Nacks are the resources that the relay rejects, oldest first.
	Nacks []Nack
	// Entries are the control planes, in order of preference.
	Entries []EntryState
}

// EntryState is one control plane of the list. Times are zero where there is nothing to tell.
type EntryState struct {
	Name string
	// InUse: it is the one that the group is served by. Others may have a probe.
	InUse bool
	// Condition is whether it keeps the group current.
	Condition Condition
	// Connected is since when its stream is open: the main one, or the probe; SotW is the
	// variant in which it is asked then.
	Connected time.Time
	SotW      bool
	// Heard is when its last response came, and Failed when a stream to it failed last, or
	// could not be opened, and why. Both outlive streams.
	Heard, Failed time.Time
	Error         string
	// Retry is when the next attempt is due.
	Retry time.Time
	// Lanes are what it is asked for, if it is in use.
	Lanes []LaneState
}

// LaneState is whether the control plane answers for a lane.
type LaneState struct {
	fanout.Lane
	// Answered: it has answered on its present stream, or before, and owes nothing.
	Answered bool
	// Asked is since when it owes the answer; zero: it owes none, or is not asked yet.
	Asked time.Time
	// Silent: that is so long, on a stream that is alive, that people were told.
	Silent bool
}

// State describes the group.
func (c *Core) State() State {
	s := State{Node: c.config.Node.GetId(), Cluster: c.config.Node.GetCluster(), Shown: c.config.Node, Nacks: slices.Clone(c.nacks.list)}
	for i := range c.entries {
		e := &c.entries[i]
		d := EntryState{Name: e.Name, InUse: i == c.current, Heard: e.heard, Failed: e.failed, Error: e.failure}
		stream := &e.probe
		d.Condition = e.idleCondition()
		if d.InUse {
			stream = &c.main
			d.Condition = c.condition()
			d.Lanes = c.laneStates()
		}
		switch {
		case stream.open():
			d.Connected, d.SotW = stream.opened, stream.sotw
		case stream.id == 0:
			d.Retry = stream.openAt
		}
		s.Entries = append(s.Entries, d)
	}
	return s
}

func (c *Core) laneStates() (states []LaneState) {
	for _, lane := range slices.SortedFunc(maps.Keys(c.hub.Lanes()), inPlan) {
		d := LaneState{Lane: lane, Silent: c.silent[lane.Type] == lane}
		_, l := c.carrier(lane)
		if d.Answered = l.hasAnswer() || c.hub.On(lane).Heard(); !d.Answered && l != nil {
			d.Asked = l.unansweredSince()
		}
		states = append(states, d)
	}
	return states
}

// Silent are the types of which people were told that the control plane says nothing.
func (c *Core) Silent() []cache.TypeURL { return slices.Collect(maps.Keys(c.silent)) }
