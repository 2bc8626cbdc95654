package session

import (
	"slices"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// The sets of SotW clients whose type is full-state: each response is the whole view, since
// clients delete what is missing from it (DOWN-SOTW-6).

// collectFull decides whether the whole view is to be sent, and lists it.
func (s *sotwState) collectFull(v fanout.View, push bool, p *part) {
	if p.answer = s.asksSet(v); !push && !p.answer {
		return
	}
	news := s.setNews(v, push, p)
	send, shrunk := news.comes || news.beats, news.goes
	resources, version, certain := s.view(v)
	if certain && version == s.version {
		send, shrunk = news.beats, false // it changed back, or only the names' states did
	}
	s.postponed = s.postpones && certain && send && !news.beats && !s.answersNew(v)
	if !certain || s.spared(v, is(version)) || s.postponed {
		s.again, s.shrink = send, shrunk
		s.failAgain(v, slices.Concat(p.errors, p.unavailable))
		p.errors, p.unavailable, p.answer = nil, nil, false
		return
	}
	p.refuse(&s.exchange)
	if !send && !shrunk && len(p.errors)+len(p.unavailable) == 0 {
		return
	}
	if send {
		p.changed = s.gained(v)
	}
	p.resources, p.version, p.must = resources, version, send
	p.news, _ = v.Set().News(0)
	s.depart(v, p, shrunk && !send, push)
	s.wildcardAsked = false
	s.answered(fanout.Wildcard)
	s.version = p.version
	v.Bodies().Handed(true) // they are among the resources
	s.delivered(v, p)
}

// asksSet: the client has asked for something that can be answered.
func (s *sotwState) asksSet(v fanout.View) bool {
	subscribed, synced := v.Wildcard()
	s.wildcardAsked = s.wildcardAsked && subscribed
	if !subscribed && len(v.Names()) == 0 {
		s.again, s.shrink, s.members = false, false, false // nothing is owed any more (row s)
	}
	return s.asked.len() > 0 || s.wildcardAsked && synced
}

// setNews is why a set may be due.
type setNews struct {
	comes bool // something may have come or changed,
	beats bool // a TTL was renewed,
	goes  bool // or something may only have gone
}

// setNews takes the reasons to look at the set, and lists the errors that go with it.
func (s *sotwState) setNews(v fanout.View, push bool, p *part) setNews {
	n := setNews{comes: s.again || s.wildcardAsked, goes: s.shrink} // rows a, c, t
	s.memberNews(v, &n)
	s.members, s.again, s.shrink = false, false, false
	if s.wildcardAsked {
		s.version = ""
	}
	s.lookAgain(v)
	asked := distinct(s.asked.take())
	for _, id := range distinct(slices.Concat(asked, s.changed.take())) {
		if v.Has(id) && !s.doubts(v, id) { // else it is marked again when it is certain
			_, asks := slices.BinarySearch(asked, id)
			s.nameNews(v, id, asks, &n, p)
		}
	}
	s.collectErrors(v, p)
	if push && (s.renewed.len() > 0 || s.membersRenewed) {
		// The whole set, since a client takes what comes without a body for gone (TTL-8).
		whole, beats := s.renewals(v, p.from)
		n.beats = len(whole)+len(beats) > 0 && !v.Bodies().Husks()
	}
	s.handed = false
	return n
}

// memberNews is what the wildcard's set adds to it.
func (s *sotwState) memberNews(v fanout.View, n *setNews) {
	if subscribed, synced := v.Wildcard(); !subscribed || !synced || !s.members && !n.comes {
		return
	}
	n.goes = true // if nothing has come; what has gone nobody remembers for this client (H-42)
	for c := range v.Set().Since(s.told) {
		n.comes = n.comes || c.Resource != nil
	}
}

// nameNews is what one name adds to it. What answers a name, and what says that an error is over, is
// told whether or not the set has changed by that (DOWN-SOTW-5, ERR-8).
func (s *sotwState) nameNews(v fanout.View, id cache.ID, asks bool, n *setNews, p *part) {
	switch a := v.Answer(id); a.State {
	case cache.Present:
		if n.comes = true; asks || !v.Told(id).Copy() || s.owes(id, &a, func(*cache.Resource) bool { return false }) {
			s.version = ""
		}
	case cache.Absent:
		n.goes = n.goes || v.Told(id).Copy() // down to an empty set, if need be (DOWN-SOTW-9)
		s.answered(v.Name(id))
		s.collectError(v, id, p)
	case cache.Unknown:
		s.collectError(v, id, p)
	}
}

// gained are those of a view that are news to the client, for whom it matters: Clusters.
func (s *sotwState) gained(v fanout.View) (changed []*cache.Resource) {
	if s.url != cache.Cluster {
		return nil
	}
	after := s.told
	if s.wildcardAsked {
		after = 0 // among these may be what it had no copy of by a name that it gave up
	}
	for c := range v.Set().Since(after) {
		if subscribed, _ := v.Wildcard(); subscribed && c.Resource != nil && !s.holds(v, c.Resource) {
			changed = append(changed, c.Resource)
		}
	}
	for _, id := range v.Names() {
		a, told := v.Answer(id), v.Told(id)
		for i, r := range a.Resources() {
			if !told.Copy() || a.Changed(i) > told.At() {
				changed = append(changed, r)
			}
		}
	}
	return changed
}

// answersNew: the set has an answer to something that was not asked for before.
func (s *sotwState) answersNew(v fanout.View) bool {
	if s.wildcardAsked && s.awaits(fanout.Wildcard) {
		return true
	}
	for name := range s.awaited {
		if id, ok := v.Lookup(name); ok && v.Answer(id).State == cache.Present {
			return true
		}
	}
	return false
}

// delivered notes what the client holds with a set, or what it does not any more when only
// that is the news and waits for other types.
func (s *sotwState) delivered(v fanout.View, p *part) {
	subscribed, _ := v.Wildcard()
	stays := leavingNames(s.stays)
	if !p.shrunk {
		s.renews(p.position)
		s.exact.keep(stays)
		if subscribed {
			s.told = p.position
		}
		if subscribed && len(s.stays) == 0 {
			s.untold = p.position
		}
	}
	for i, id := range v.Names() {
		switch a := v.Answer(id); {
		case a.State == cache.Present:
			s.deliveredName(v, i, &a, p)
		case p.shrunk:
			p.goneIDs = append(p.goneIDs, id)
		case !stays.has(v.Name(id)):
			v.TellAt(i, fanout.ToldGone(p.position))
		}
	}
}

// deliveredName notes what one of its names, by its number, has brought with a set.
func (s *sotwState) deliveredName(v fanout.View, i int, a *cache.Answer, p *part) {
	id := v.Names()[i]
	s.leads(v, id, a) // what it led to before is not in the set
	if !p.shrunk {
		v.TellAt(i, fanout.ToldCopy(p.position))
	}
	if v.LedTo(id) != nil {
		for _, r := range a.Resources() {
			s.exact.hasAt(s.exact.add(r.Name), r.Version, p.position)
		}
	}
	s.paid(id, a)
	s.answered(v.Name(id))
}
