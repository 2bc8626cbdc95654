package session

import (
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Whole is the one response of a unary call: everything that the first request asks
// for, once all of it is resolved, and nil until then (REST-10). It is called in
// place of Next, on a SotW session of one type.
func (s *Session) Whole(now time.Time) (*Response, *End) {
	s.subscriber.Take()
	for _, st := range s.states {
		sp := &speaker{state: st, adds: true}
		st.base().sub.Read(func(v fanout.View) {
			st.base().source = v.Marks().Source // they only say when to look
			s.untell(st.base())
			s.measure(sp, v)
			sp.part = st.(*sotwState).whole(v)
		})
		switch {
		case sp.must:
			return s.say(sp, now), nil
		case sp.starving != nil:
			return nil, &End{Unreachable, sp.starving.GetMessage()} // ERR-7
		}
	}
	return nil, nil
}

// whole is all of a view, if everything in it is resolved. Asking for nothing is
// answered with nothing (row b).
func (s *sotwState) whole(v fanout.View) (p part) {
	p.position = v.Position()
	p.starving = starving(v, s.brings)
	if subscribed, synced := v.Wildcard(); subscribed && !synced {
		return p
	}
	for _, id := range v.Names() {
		if d := v.Verdict(id, s.came != ""); d == fanout.Unknown && v.Answer(id).Error == nil || d == fanout.Doubt {
			return p
		}
	}
	var complete bool
	if p.resources, complete = bodies(v, everything(v)); !complete {
		return p
	}
	if p.version = viewVersion(v, p.resources); !s.replaces(v, is(p.version)) {
		return p
	}
	p.resources = s.fitting(v, slices.Clone(p.resources), &p)
	v.Bodies().Handed(true) // they are among the resources
	for _, id := range v.Names() {
		if a := v.Answer(id); a.State != cache.Present || a.Error != nil {
			s.collectError(v, id, &p)
		}
	}
	p.refuse(&s.exchange)
	s.expiring(v, &p)
	p.must, p.answer = true, true
	return p
}
