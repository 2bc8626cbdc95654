package admin

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/events"
	"github.com/xds-relay/xds-relay/upstream"
	upsession "github.com/xds-relay/xds-relay/upstream/session"
)

// plane is a control plane of the list as all groups together see it.
type plane struct {
	Address   string
	Condition upsession.Condition // the worst of any group that uses it
	Since     time.Time           // of the condition, as far as is known
	Mode      string
	InUse     int // groups that use it
	Failing   int // of these
	Heard     time.Time
	Failed    time.Time
	Error     string
	Retry     time.Time
	Groups    []planeGroup
	More      int // groups that are not listed
	Lanes     []planeLane
	Events    []events.Event // of it, newest first
}

// Gone reports whether what it has answered may be out of date.
func (p *plane) Gone() bool {
	return p.Condition == upsession.Down || p.Condition == upsession.Refused
}

// planeGroup is a group that uses it.
type planeGroup struct {
	Name, Node string
	Condition  upsession.Condition
	Connected  time.Time
}

// planeLane is a type that it is asked for.
type planeLane struct {
	Type       cache.TypeURL
	Wildcard   bool
	Groups     int // that ask for it
	Unanswered int // of these
	Silent     bool
	Asked      time.Time // since when the longest of these waits
	Answered   time.Time // when the last response of the type came, from whichever control plane
}

// fewGroups bounds the groups that are listed of a control plane: there may be as many as clients.
const fewGroups = 50

// planes are those of the list, in order of preference.
func (u *ui) planes(now time.Time) (all []*plane) {
	byAddress := make(map[string]*plane)
	for _, address := range u.relay.ControlPlanes() {
		if byAddress[address] == nil {
			p := &plane{Address: address, Condition: upsession.Standby}
			byAddress[address], all = p, append(all, p)
		}
	}
	states := u.relay.Upstream()
	for _, name := range slices.Sorted(maps.Keys(states)) {
		for _, e := range states[name].Entries {
			p := byAddress[e.Name]
			if p == nil { // it is not in the list any more
				p = &plane{Address: e.Name, Condition: upsession.Standby}
				byAddress[e.Name], all = p, append(all, p)
			}
			p.add(name, states[name].Node, &e, now)
		}
	}
	return all
}

// add adds how a group gets on with it.
func (p *plane) add(group, node string, e *upsession.EntryState, now time.Time) {
	if e.InUse {
		p.InUse++
		if len(p.Groups) < fewGroups {
			p.Groups = append(p.Groups, planeGroup{group, node, e.Condition, e.Connected})
		} else {
			p.More++
		}
	}
	if e.Condition.Fails() {
		p.Failing++
	}
	if severity(e.Condition) > severity(p.Condition) {
		p.Condition = e.Condition
	}
	if !e.Connected.IsZero() {
		p.Mode = upstream.Stream{SotW: e.SotW}.Mode()
		if p.Since.IsZero() || e.Connected.Before(p.Since) {
			p.Since = e.Connected
		}
	}
	if e.Heard.After(p.Heard) {
		p.Heard = e.Heard
	}
	if e.Failed.After(p.Failed) {
		p.Failed, p.Error = e.Failed, e.Error
	}
	if e.Retry.After(now) && e.Retry.After(p.Retry) {
		p.Retry = e.Retry
	}
	for _, l := range e.Lanes {
		p.lane(&l)
	}
}

func (p *plane) lane(l *upsession.LaneState) {
	i := slices.IndexFunc(p.Lanes, func(of planeLane) bool { return of.Type == l.Type && of.Wildcard == l.Wildcard })
	if i < 0 {
		p.Lanes, i = append(p.Lanes, planeLane{Type: l.Type, Wildcard: l.Wildcard}), len(p.Lanes)
	}
	of := &p.Lanes[i]
	of.Groups++
	if !l.Answered {
		of.Unanswered++
	}
	of.Silent = of.Silent || l.Silent
	if !l.Asked.IsZero() && (of.Asked.IsZero() || l.Asked.Before(of.Asked)) {
		of.Asked = l.Asked
	}
}

// planeKinds are events about control planes.
var planeKinds = []events.Kind{
	events.ControlPlaneLost, events.ControlPlaneBack, events.ControlPlaneSwitched, events.ResponseRejected,
	events.GroupRefused, events.TypeQuarantined, events.TypeAcquitted,
}

// The events of a control plane that are looked through, and that are shown.
const (
	lookedThrough = 1000
	fewEvents     = 30
)

// tell adds the events of each control plane, and since when one that fails does so.
func (u *ui) tell(all []*plane) {
	list := u.ring.List(0, planeKinds, lookedThrough).Events
	for _, e := range slices.Backward(list) {
		i := slices.IndexFunc(all, func(p *plane) bool { return p.Address == e.ControlPlane })
		if i < 0 {
			continue
		}
		p := all[i]
		if len(p.Events) < fewEvents {
			p.Events = append(p.Events, e)
		}
	}
	for _, p := range all {
		if p.Condition.Fails() {
			p.Since = p.failsSince()
		}
		for i := range p.Lanes {
			l := &p.Lanes[i]
			if at := u.metrics.observed.types.of(l.Type).answered.Load(); at > 0 {
				l.Answered = time.Unix(0, at)
			}
		}
		slices.SortFunc(p.Lanes, func(a, b planeLane) int { return cmp.Compare(a.Type.Rank(), b.Type.Rank()) })
	}
}

// failsSince is when a control plane was lost, if it was not back since; else when it failed last, or since when it
// owes an answer.
func (p *plane) failsSince() (since time.Time) {
	if p.Condition == upsession.Mute || p.Condition == upsession.Waiting {
		for _, l := range p.Lanes {
			if since.IsZero() || !l.Asked.IsZero() && l.Asked.Before(since) {
				since = l.Asked
			}
		}
		return since
	}
	for _, e := range p.Events {
		switch e.Kind {
		case events.ControlPlaneLost:
			return e.First
		case events.ControlPlaneBack:
			return p.Failed
		}
	}
	return p.Failed
}

// planesView shows the control planes.
func (u *ui) planesView(w http.ResponseWriter, req *http.Request) {
	if !u.asks(w, req) {
		return
	}
	moves := u.metrics.observed.moves.Load()
	all := u.planes(time.Now())
	u.tell(all)
	u.show(w, "planes", "Control planes", "planes", moves, all)
}
