package session

import (
	"time"

	"github.com/xds-relay/xds-relay/fanout"
)

// A type of which the control plane says nothing at all, though its stream is alive: it may
// not know the node that it is shown, or have nothing of the type. Clients of the relay wait
// as they would without it, and nothing follows for them; but people are told, once for each
// group and type. A stream that was shown what is here may be silent because nothing has
// changed (RECON-11): then nobody waits.

// Silence is what people are told about it.
type Silence struct {
	// Over: the control plane has answered after all. Nothing else is said then.
	Over bool
	// Since is when it was asked, and Clients how many wait for the answer.
	Since   time.Time
	Clients int
	// Node and Cluster are the id and the cluster of the node that it is shown.
	Node, Cluster string
}

// lookAgain is when a lane is looked at again on which clients wait, at the earliest, and
// lookSeldom when one on which they do not, or of which people know.
const (
	lookAgain  = time.Second
	lookSeldom = time.Minute
)

// unansweredSince is since when the lane has been asked for, if no response has come.
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

// tickSilence looks whether people are to be told about a lane.
func (c *Core) tickSilence(s *slot, l *laneState, now time.Time) {
	if at := l.silenceAt(); at.IsZero() || at.After(now) {
		return
	}
	l.lookAt = now.Add(lookSeldom)
	clients := c.hub.On(l.lane).Waiting()
	if _, told := c.silent[l.lane.Type]; told || clients == 0 {
		return
	}
	since := l.unansweredSince()
	switch at := since.Add(c.config.Missing); {
	case since.IsZero(): // what they want is not asked for yet
		return
	case at.After(now):
		l.lookAt = at
		return
	case !c.attentive(s, l):
		l.lookAt = now.Add(max(c.config.patience(), lookAgain))
		return
	}
	c.silent[l.lane.Type] = l.lane
	c.effects = append(c.effects, Effect{Lane: l.lane, Entry: c.entries[s.entry].Name, Silence: &Silence{
		Since: since, Clients: clients, Node: c.config.Node.GetId(), Cluster: c.config.Node.GetCluster(),
	}})
}

// attentive: somebody is there, and has read what was asked. Where nobody is asked for
// that, a stream that has been open for so long will do.
func (c *Core) attentive(s *slot, l *laneState) bool {
	return s.failingSince().IsZero() && (s.alive.answeredSince(l.question) || !c.checks(s))
}

// speaks notes that a response of a lane has come.
func (c *Core) speaks(lane fanout.Lane) {
	if c.silent[lane.Type] == lane {
		delete(c.silent, lane.Type)
		c.effects = append(c.effects, Effect{Lane: lane, Silence: &Silence{Over: true}})
	}
}
