package session

import (
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Whole returns the one response of a unary call: everything that the first request asks for once
// all of it is resolved, and nil until then (REST-10). It is called instead of Next, on a SotW
// session of one type.
func (s *Session) Whole(now time.Time) (*Response, *End) {
	s.subscriber.Take()
	w := s.states[0].(*sotwState)
	if w.denied.has(fanout.Wildcard) {
		return nil, &End{Forbidden, notAllowed.GetMessage()}
	}
	sp := &candidate{state: w, plan: plan{mute: s.kind.V2}}
	w.sub.Read(func(v fanout.View) {
		w.source = v.Marks().Source // marks only say when to look
		s.untell(w.base(), now)
		s.measure(sp, v)
		w.whole(v, &sp.plan)
	})
	switch {
	case sp.must:
		return s.say(sp, now), nil
	case w.starving != nil:
		return nil, &End{Unreachable, w.starving.GetMessage()} // ERR-7
	}
	return nil, nil
}

// whole returns the whole view, if everything in it is resolved. A request for nothing gets an
// empty answer (row b).
func (s *sotwState) whole(v fanout.View, p *plan) {
	p.position = v.Position()
	if s.starving = starving(v, s.claims); s.sets && s.keepsAll() {
		s.starving = noGlob
		return
	}
	if subscribed, synced := v.Wildcard(); subscribed && !synced {
		return
	}
	resolved, doubt := s.resolution(v)
	if !resolved {
		return
	}
	if p.version = versionOf(v); doubt && s.came != p.version {
		return
	}
	p.resources = s.fitting(v, slices.Clone(everything(v)), p)
	for _, id := range v.Names() {
		if a := v.Answer(id); a.State != cache.Present || a.Error != nil {
			s.collectError(v, id, p)
		}
	}
	p.refuse(&s.exchange)
	s.expiring(v, p)
	p.must, p.answer = true, true
}

// resolution reports whether every name has an answer, and whether something is in doubt.
func (s *sotwState) resolution(v fanout.View) (resolved, doubt bool) {
	doubt = v.Set().Resolution(s.came != "") == fanout.InDoubt
	for _, id := range v.Names() {
		d := v.Resolution(id, s.came != "")
		if d == fanout.Pending && v.Answer(id).Error == nil {
			return false, doubt
		}
		doubt = doubt || d == fanout.InDoubt
	}
	return true, doubt
}
