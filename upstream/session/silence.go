package session

import (
	"time"

	"github.com/xds-relay/xds-relay/fanout"
)

// A control plane may be silent about a whole type although its stream is alive: it may not know
// the node, or have no resource of the type. Clients wait as they would without the relay, and
// the relay only reports the silence, once for each group and type. A stream that was shown
// versions may be silent because nothing has changed (RECON-11), but then no client waits.
//
//	asked -- Config.Missing, clients wait, and the stream is attentive (tickSilence) --> silent
//	asked or silent -- a response of the type (speaks) --> answered

// Silence is the report about a lane, for the log.
type Silence struct {
	toEdge
	Lane  fanout.Lane
	Entry string
	// Since is when the type was asked for, and Clients how many wait for the answer.
	Since   time.Time
	Clients int
	// Node and Cluster are the id and the cluster of the node that the control plane was sent.
	Node, Cluster string
}

// Answered says that the control plane has answered after all.
type Answered struct {
	toEdge
	Lane fanout.Lane
}

// lookAgain is the least time until a lane is looked at again for which clients wait. lookSeldom
// is that time if no clients wait, or if the silence was reported.
const (
	lookAgain  = time.Second
	lookSeldom = time.Minute
)

// unansweredSince is when the lane was first asked for, or zero if a response has come.
func (l *laneState) unansweredSince() (since time.Time) {
	if !l.answered {
		for _, at := range l.sent {
			since = earlier(since, at)
		}
	}
	return since
}

// silenceAt is when to look at the lane, or zero.
func (l *laneState) silenceAt() time.Time {
	if l.answered {
		return time.Time{}
	}
	return l.lookAt
}

// tickSilence reports the silence about a lane if it is time to.
func (c *Core) tickSilence(s *slot, l *laneState, now time.Time) {
	if !due(l.silenceAt(), now) {
		return
	}
	l.lookAt = now.Add(lookSeldom)
	clients := c.hub.On(l.lane).Waiting()
	if _, told := c.silent[l.lane.Type]; told || clients == 0 {
		return
	}
	since := l.unansweredSince()
	switch at := since.Add(c.config.Missing); {
	case since.IsZero(): // the names that clients wait for are not asked for yet
		return
	case at.After(now):
		l.lookAt = at
		return
	case !c.attentive(s, l):
		l.lookAt = now.Add(max(c.config.patience(), lookAgain))
		return
	}
	c.silent[l.lane.Type] = l.lane
	c.emit(Silence{
		Lane: l.lane, Entry: c.entryOf(s).Name, Since: since, Clients: clients, Node: c.config.Node.GetId(), Cluster: c.config.Node.GetCluster(),
	})
}

// attentive reports whether the stream has no outage (solo, it has had one), and is alive as of the
// lane's opening request. Without health checks every stream is taken for alive.
func (c *Core) attentive(s *slot, l *laneState) bool {
	if s.role != Solo && s.fails() {
		return false
	}
	return s.alive.answeredSince(l.question) || !c.checks(s)
}

// speaks ends the silence about a lane when a response comes.
func (c *Core) speaks(lane fanout.Lane) {
	if c.silent[lane.Type] == lane {
		delete(c.silent, lane.Type)
		c.emit(Answered{Lane: lane})
	}
}
