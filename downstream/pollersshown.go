package downstream

import (
	"cmp"
	"fmt"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/events"
)

// showPoll shows a poll or its answer to whoever watches.
func (s *Server) showPoll(p *poller, t cache.TypeURL, of func() *events.Message) {
	if s.config.Watch.Wants(p.id, p.node, t) {
		m := of()
		m.Stream, m.Node, m.Type = p.id, p.node, t
		m.Kind = cmp.Or(m.Kind, events.MessageKind(session.FetchRequest))
		s.config.Watch.Show(*m)
	}
}

// inStep and behind are the states that a poller may be in.
var inStep, isBehind = session.SyncStates()[0], session.SyncStates()[2]

// describe describes a poller for the admin endpoint.
func (ps *pollers) describe(p *poller) Client {
	ps.mu.Lock()
	i, at := p.current, p.sofar
	ps.mu.Unlock()
	c := Client{
		Stream: p.id, Node: p.node, Peer: p.peer.Address, Identity: p.peer.Identity, Protocol: protocolREST, Since: p.since, Sync: inStep,
		Responses: at.responses, Bytes: at.bytes,
	}
	if i == nil {
		return c
	}
	i.with(func(of *session.Session) { c.Cluster, c.Types = of.Node().GetCluster(), of.Describe() })
	for j := range c.Types {
		at.tell(&c.Types[j])
		c.Sync = c.Types[j].Sync
	}
	return c
}

// tell says of a type how far the poller is.
func (p *sofar) tell(t *session.ClientType) {
	t.Sync, t.Behind, t.Since = inStep, 0, time.Time{}
	t.LastSent = p.toldAt
	if p.old == 0 {
		t.LastAck = p.last
	}
	if p.old >= mayBeOld {
		t.Sync, t.Behind, t.Since = isBehind, max(p.size, 1), p.toldAt
	}
}

// summarize counts pollers.
func (ps *pollers) summarize(sum *Summary, now time.Time) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.by {
		sum.Protocols[protocolREST]++
		if p.old < mayBeOld {
			sum.Sync[inStep]++
			continue
		}
		sum.Sync[isBehind]++
		sum.lags(p.toldAt, now)
	}
}

// find returns the poller of a number, or nil.
func (ps *pollers) find(id uint64) *poller {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.byID[id]
}

// names describes the resources of a type that a poller asks for. What it has is known only of all of them together.
func (ps *pollers) names(id uint64, t cache.TypeURL, after string, most int) (names []session.ClientName, more bool) {
	ps.mu.Lock()
	p := ps.byID[id]
	if p == nil || p.current == nil {
		ps.mu.Unlock()
		return nil, false
	}
	i, step := p.current, session.StepSynced
	if p.old >= mayBeOld {
		step = session.StepUnacked
	}
	ps.mu.Unlock()
	i.with(func(of *session.Session) { names, more = of.Names(t, after, most) })
	for j := range names {
		if n := &names[j]; n.Step == session.StepUnsent {
			n.Step = step
		}
	}
	return names, more
}

// check returns the invariants that do not hold.
func (ps *pollers) check() []string {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	broken := ps.shares.Check()
	if n := ps.shares.Used(); n != len(ps.by) || n != len(ps.byID) {
		broken = append(broken, fmt.Sprintf("pollers: %d have a share, %d have a key and %d a number", n, len(ps.by), len(ps.byID)))
	}
	for sum, p := range ps.bySum {
		if p.current == nil || p.current.sum != sum || ps.by[p.key] != p {
			broken = append(broken, fmt.Sprintf("poller %d is found by a request that is not its last one", p.id))
		}
	}
	return broken
}
