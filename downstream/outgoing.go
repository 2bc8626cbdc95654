package downstream

import (
	"slices"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Clusters that go while others come stay in a SotW client's set until what referred to
// them has been turned to those (ORDER-2): the set in which these come still lists them,
// and the one after its ACK does not. Delta has removals for that (succeeds).

// outgoing is what a full-state set still lists of what is gone.
type outgoing struct {
	notes bool              // what is sent is remembered for it: Clusters on an aggregated stream
	keeps bool              // it does: there is what refers to them on the stream
	waits bool              // something that refers to them waits just now
	last  []*cache.Resource // the set that was sent last
	gone  map[string]bool   // what of it is gone, by name; true: it was when the set was sent
}

// noteGone notes that a name is gone.
func (o *outgoing) noteGone(name string) {
	if _, known := o.gone[name]; known || !o.notes {
		return
	}
	if o.gone == nil {
		o.gone = make(map[string]bool)
	}
	o.gone[name] = false
}

// leaves: a name is gone, and the client's set still lists it.
func (o *outgoing) leaves(name string) bool {
	_, gone := o.gone[name]
	return gone
}

// list is a set that is about to be sent, with what stays in it. What stayed in the last one
// too does so only while something waits, or that set is not acknowledged.
func (o *outgoing) list(v fanout.View, resources []*cache.Resource, acked bool) []*cache.Resource {
	gone := o.gone
	if o.gone = nil; len(gone) == 0 || !o.keeps {
		return resources
	}
	subscribed, _ := v.Wildcard()
	all := slices.Clip(resources) // it is shared
	for _, r := range o.last {
		stayed, leaves := gone[r.Name]
		if !leaves || stayed && acked && !o.waits || r.DoNotCache || v.Resource(r.Name) != nil || v.Expired(r.Name) {
			continue
		}
		if _, named := v.Lookup(r.Name); named || subscribed {
			all = append(all, r)
			o.noteGone(r.Name)
			o.gone[r.Name] = true
		}
	}
	return all
}

// told notes the set that is sent.
func (o *outgoing) told(resources []*cache.Resource) {
	if o.last = nil; o.notes {
		o.last = resources
	}
}

// leave: these errors are of nothing but names that the client's set lists and that are gone.
// They go with the set without them (MISS-6).
func (s *sotwState) leave(errors []resourceErr) bool {
	return !slices.ContainsFunc(errors, func(e resourceErr) bool { return !s.outgoing.leaves(e.name) })
}

// extend adds to a set that goes now what stays in it, and keeps the errors of that back.
func (s *sotwState) extend(v fanout.View, p *part, acked bool) {
	var back []cache.ID
	if !p.shrunk {
		all := s.outgoing.list(v, p.resources, acked)
		if len(all) > len(p.resources) {
			p.resources, p.version, p.news, s.shrink = all, digest(all), nil, true
		}
		s.outgoing.told(all)
	}
	for _, e := range p.errors {
		if id, ok := v.Lookup(e.name); ok && s.outgoing.leaves(e.name) {
			back = append(back, id)
		}
	}
	if p.shrunk {
		p.removedIDs = back
		return
	}
	s.failed.add(back...)
	p.errors = slices.DeleteFunc(p.errors, func(e resourceErr) bool { return s.outgoing.leaves(e.name) })
}
