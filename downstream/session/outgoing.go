package session

import (
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Clusters that go while others come stay in a SotW client's set until what referred to
// them has been turned to those (ORDER-2): the set in which these come still lists them,
// and the one after its ACK does not. Delta has removals for that (succeeds).

// outgoing is what a full-state set still lists of what is gone.
type outgoing struct {
	turn  turn
	last  []*cache.Resource            // what may stay of the set that was sent last; may be shared
	stays map[*cache.Resource]struct{} // what of it was gone already when it was sent
}

// turn is what the Session knows of it, at one instant.
type turn struct {
	notes   bool // the set that is sent may be needed: it lists Clusters, on an aggregated stream
	keeps   bool // what goes stays: something refers to Clusters on the stream
	waits   bool // something that refers to them waits
	overdue bool // what stays has done so for ack_timeout
	now     time.Time
}

// turns is the turn of a type's set.
func (s *Session) turns(st state, now time.Time) turn {
	return turn{
		notes: st == s.clusters && s.config.WarmingHold > 0, keeps: s.succession(st), waits: s.referrersDue(),
		overdue: s.stayed(st.base(), now), now: now,
	}
}

// stayed: what stays in a type's set has done so for ack_timeout.
func (s *Session) stayed(x *exchange, now time.Time) bool {
	return !x.staysSince.IsZero() && !now.Before(x.staysSince.Add(s.config.AckTimeout))
}

// leaving are the resources of the last set whose names the new one does not list. changed
// are those of the new one that are news, if they are known.
func (o *outgoing) leaving(resources, changed []*cache.Resource) []*cache.Resource {
	var missing []*cache.Resource
	at := 0 // both are in order of change
	for _, r := range o.last {
		if i := at; i < len(resources) && resources[i] == r {
			at++
			continue
		}
		missing = append(missing, r)
	}
	for _, list := range [][]*cache.Resource{changed, resources} {
		if len(missing) == 0 {
			return nil
		}
		missing = without(missing, list)
	}
	return missing
}

// without are the resources that bear no name of the listed ones.
func without(resources, listed []*cache.Resource) []*cache.Resource {
	names := make(map[string]bool, len(resources))
	for _, r := range resources {
		names[r.Name] = true
	}
	for _, r := range listed {
		if names[r.Name] {
			names[r.Name] = false
		}
	}
	return slices.DeleteFunc(resources, func(r *cache.Resource) bool { return !names[r.Name] })
}

// staying are those that the new set lists all the same. What stayed in the last one does so
// only while something waits, or that set is not acknowledged, and for ack_timeout.
func (o *outgoing) staying(leaving []*cache.Resource, acked bool) []*cache.Resource {
	if !o.turn.keeps {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(leaving), func(r *cache.Resource) bool {
		_, stayed := o.stays[r]
		return stayed && (o.turn.overdue || acked && !o.turn.waits)
	})
}

// lasting are the resources of a set that is to be sent which may stay in the next one. What
// expires by itself or is not to be kept never stays.
func (o *outgoing) lasting(v fanout.View, resources []*cache.Resource) []*cache.Resource {
	switch {
	case !o.turn.notes:
		return nil
	case !v.Husks() && !v.Leased():
		return resources
	}
	return slices.DeleteFunc(slices.Clone(resources), func(r *cache.Resource) bool {
		ends, _, _ := v.Ends(r)
		return r.DoNotCache || !ends.IsZero()
	})
}

// giveUp forgets what the client no longer subscribes to: if it does so again, it holds
// nothing of it.
func (o *outgoing) giveUp(v fanout.View) {
	if subscribed, _ := v.Wildcard(); subscribed || len(o.last) == 0 {
		return
	}
	subscribed := func(name string) bool { _, ok := v.Lookup(name); return ok }
	o.last = slices.DeleteFunc(slices.Clone(o.last), func(r *cache.Resource) bool {
		return !subscribed(r.Name) && !slices.ContainsFunc(r.Aliases, subscribed)
	})
}

// depart decides what of the last set stays in the new one, and whether that only takes away
// (shrunk). An error of what stays, or waits to be taken away, goes with the set that does not
// list it (MISS-6).
func (s *sotwState) depart(v fanout.View, p *part, shrunk, acked bool) {
	leaving := s.outgoing.leaving(p.resources, p.changed)
	ids, others := errorsOf(v, p.errors, leaving)
	if shrunk && len(others)+len(p.unavailable) == 0 {
		p.shrunk, p.removedIDs, p.lasting = true, ids, s.outgoing.lasting(v, p.resources)
		return
	}
	staying := s.outgoing.staying(leaving, acked)
	if len(staying) == 0 {
		s.departed(s.outgoing.lasting(v, p.resources))
		return
	}
	ids, p.errors = errorsOf(v, p.errors, staying)
	s.failed.add(ids...)
	p.resources, p.staying = append(slices.Clip(p.resources), staying...), staying // they are shared
	p.version, p.news, s.shrink = digest(p.resources), nil, true
	if s.staysSince.IsZero() || s.outgoing.turn.overdue {
		s.staysSince = s.outgoing.turn.now
	}
	s.outgoing.last, s.outgoing.stays = s.outgoing.lasting(v, p.resources), make(map[*cache.Resource]struct{}, len(staying))
	for _, r := range staying {
		s.outgoing.stays[r] = struct{}{}
	}
}

// departed notes that the client is sent a set in which nothing stays.
func (s *sotwState) departed(lasting []*cache.Resource) {
	s.staysSince, s.outgoing.last, s.outgoing.stays = time.Time{}, lasting, nil
}

// errorsOf parts the errors of names that lead to some resources, by their IDs, from the others.
func errorsOf(v fanout.View, errors []resourceErr, resources []*cache.Resource) (ids []cache.ID, others []resourceErr) {
	if len(errors) == 0 || len(resources) == 0 {
		return nil, errors
	}
	names := make(map[string]struct{}, len(resources))
	for _, r := range resources {
		names[r.Name] = struct{}{}
		for _, alias := range r.Aliases {
			names[alias] = struct{}{}
		}
	}
	for _, e := range errors {
		id, subscribed := v.Lookup(e.name)
		if _, found := names[e.name]; found && subscribed && e.status != noLocate {
			ids = append(ids, id)
		} else {
			others = append(others, e)
		}
	}
	return ids, others
}
