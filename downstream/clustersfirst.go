package downstream

import (
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// What refers to Clusters waits until the client has acknowledged those (ORDER-3). An
// Envoy acknowledges Clusters once they have warmed, and some control planes wait for
// that ACK before they turn a route to a new Cluster. The relay acknowledges upstream at
// once, so it has to wait on their behalf.

// warmingHold is what a Session keeps of it.
type warmingHold struct {
	clusters *exchange // Clusters on this stream, or nil
	since    time.Time // the first change that waits; zero: none does
}

// refersToClusters: the resources of a type name Clusters, and break if one of those is
// not there yet.
func refersToClusters(t cache.TypeURL) bool {
	switch t {
	case cache.Listener, cache.ScopedRoute, cache.Route, cache.VirtualHost:
		return true
	}
	return false
}

// gains: there are additions and changes to tell.
func (x *exchange) gains(v fanout.View) bool {
	if subscribed, synced := v.Wildcard(); x.members && subscribed && synced && x.membersGained(v) {
		return true
	}
	return slices.ContainsFunc(x.changed.items, func(id cache.ID) bool { return v.Has(id) && v.Answer(id).State == cache.Present })
}

// membersGained: there are some in the wildcard's set.
func (x *exchange) membersGained(v fanout.View) bool {
	for c := range v.Members(x.told) {
		if c.Resource != nil {
			return true
		}
	}
	return false
}

// withholds: additions and changes of what refers to Clusters have to wait. The client has
// yet to judge Clusters that it was sent, or is to be sent others when it has, or came with
// some and it is not known yet which others it is to be sent.
func (s *Session) withholds(now time.Time) (wait bool) {
	c := s.warming.clusters
	if c == nil || len(c.unacked) == 0 && !c.returning || s.config.WarmingHold == 0 || c.holdExpired || s.outage.over(now) {
		return false
	}
	unjudged := c.unjudged()
	c.sub.Read(func(v fanout.View) {
		wildcard, _ := v.Wildcard()
		wait = (wildcard || len(v.Names()) > 0) && (unjudged || c.returning || c.gains(v))
	})
	return wait
}

// replaces: a response tells of Clusters and would take others away. What leads to these
// may come in a moment, turned to those, and will wait for their ACK: so does what goes, and
// then for what has come. An exchange that waits so is among those that it waits for itself.
func (s *Session) replaces(sp *speaker, now time.Time) bool {
	x := sp.base()
	return x == s.warming.clusters && sp.late() && len(sp.changed) > 0 &&
		s.config.WarmingHold > 0 && !x.holdExpired && !s.outage.over(now) &&
		slices.ContainsFunc(s.states, func(st state) bool { return st.base().refers })
}

// unjudged: the client has been sent additions or changes and has said nothing of them yet.
func (x *exchange) unjudged() bool {
	return slices.ContainsFunc(x.unacked, func(s sent) bool { return s.changes })
}

// expireHold ends the wait when it has lasted warming_hold. There is no other one until
// the client acknowledges Clusters.
func (s *Session) expireHold(now time.Time) {
	if !s.warming.since.IsZero() && !now.Before(s.holdEnds()) {
		s.warming.clusters.holdExpired = true
	}
}

func (s *Session) holdEnds() time.Time { return s.warming.since.Add(s.config.WarmingHold) }

// hurried: Clusters are sent though others are not acknowledged, since there is something
// that may refer to them, and will not wait.
func (s *Session) hurried(x *exchange) bool {
	return x.holdExpired && slices.ContainsFunc(s.states, func(st state) bool {
		o := st.base()
		return o.refers && (o.marked || st.due())
	})
}

// noteHold notes when something began to wait, and when nothing does any more.
func (s *Session) noteHold(now time.Time) {
	waits := func(st state) bool { return st.base().waits && st.due() }
	switch {
	case !slices.ContainsFunc(s.states, waits):
		s.warming.since = time.Time{}
	case s.warming.since.IsZero():
		s.warming.since = now
	}
}

// returns notes whether it is known what has become of what the client came with: the
// wildcard's set, and the names that it brought.
func (x *exchange) returns(v fanout.View, brought func(name string) bool) {
	if !x.returning {
		return
	}
	subscribed, synced := v.Wildcard()
	x.returning = subscribed && (!synced || v.WarmSet()) || slices.ContainsFunc(v.Names(), func(id cache.ID) bool {
		return (v.Warm(id) || v.Answer(id).State == cache.Unknown) && brought(v.Name(id))
	})
}

// await notes that a newly subscribed name has no answer yet. Its answer, when it comes,
// does not wait for Clusters.
func (x *exchange) await(name string) {
	if !x.refers {
		return
	}
	if x.awaited == nil {
		x.awaited = make(map[string]struct{})
	}
	x.awaited[name] = struct{}{}
}

func (x *exchange) awaits(name string) bool {
	_, awaited := x.awaited[name]
	return awaited
}

// answered: the client is told of the name, or has given it up.
func (x *exchange) answered(name string) {
	if delete(x.awaited, name); len(x.awaited) == 0 {
		x.awaited = nil
	}
}

// putOff keeps back the names of which the client would be told something new, and
// returns the others: names that are gone, and first answers.
func (x *exchange) putOff(v fanout.View, changed []cache.ID) []cache.ID {
	return slices.DeleteFunc(changed, func(id cache.ID) bool {
		if !v.Has(id) {
			return true
		}
		if x.awaits(v.Name(id)) || v.Answer(id).State != cache.Present {
			return false
		}
		x.changed.add(id)
		x.waits = true
		return true
	})
}

// removalsOnly lists what has left the wildcard's set, and leaves the rest of its changes
// for later, if there are any.
func (d *deltaState) removalsOnly(v fanout.View, p *part) {
	if d.held != nil { // what it came with is judged with the rest
		d.waits = true
		return
	}
	d.collectChanges(v, p)
	d.waits = len(p.resources) > 0
	if d.waits {
		p.resources, p.news = nil, nil
	}
}

// repeats notes names that the client asks for although it subscribes to them.
func (d *deltaState) repeats(again []cache.ID) {
	for _, id := range again {
		if d.repeated == nil {
			d.repeated = make(map[cache.ID]bool)
		}
		d.repeated[id] = true
	}
}

// putOffAsked keeps back the names that were asked for but would bring a change: the client
// subscribes to them already and has not been told what is new, or it came with another
// version.
func (d *deltaState) putOffAsked(v fanout.View, asked []cache.ID) []cache.ID {
	if len(d.repeated) == 0 && d.held == nil {
		return asked
	}
	changed := distinct(slices.Clone(d.changed.items))
	return slices.DeleteFunc(asked, func(id cache.ID) bool {
		if !v.Has(id) {
			return false // it needs no answer
		}
		r := v.Answer(id).Resource
		if r == nil {
			return false
		}
		_, untold := slices.BinarySearch(changed, id)
		brought, came := d.held[v.Name(id)]
		if !(untold && d.repeated[id] || came && brought != r.Version) {
			return false
		}
		d.asked.add(id)
		d.waits = true
		return true
	})
}
