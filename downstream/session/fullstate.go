package session

import (
	"slices"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// The sets of SotW clients whose type is full-state: each response is the whole view, since
// clients delete what it lacks (DOWN-SOTW-6).

// collectFull decides whether the whole view is to be sent, and lists it.
func (s *sotwState) collectFull(v fanout.View, push bool, p *plan) {
	if p.answer = s.asksSet(v); !push && !p.answer {
		return
	}
	news := s.setNews(v, push, p)
	resources, version, certain := s.view(v)
	same := certain && version == s.version
	send, shrunk := news.due(same, s.ttl && v.AnyTTL())
	changes := certain && send && !same
	s.heldForCDS = changes && s.holdsSetForCDS(v, news)
	if !certain || s.waitsForReturn(v) || s.heldForCDS {
		s.setDue, s.shrink = send, shrunk
		s.failAgain(v, slices.Concat(p.errors, p.unavailable))
		p.errors, p.unavailable, p.answer = nil, nil, false
		return
	}
	send = send || shrunk && s.url.ReplacesAtOnce()
	p.refuse(&s.exchange)
	if !send && !shrunk && len(p.errors)+len(p.unavailable) == 0 {
		return
	}
	if send {
		p.changed = s.gained(v, version)
	}
	p.resources, p.version, p.must = resources, version, send
	p.news, _ = v.Set().News(0)
	s.depart(v, p, shrunk && !send, push)
	s.wildcardAsked = false
	s.answered(fanout.Wildcard)
	s.version = p.version
	s.delivered(v, p)
}

// holdsSetForCDS reports whether a set that has changed waits for Clusters (ORDER-3). It does not if it renews
// what the client holds, or answers something new.
func (s *sotwState) holdsSetForCDS(v fanout.View, news setNews) bool {
	renews := func(r *cache.Resource) bool { return s.holds(v, r) } // else it is a change
	return s.waitsForCDS && !slices.ContainsFunc(news.renewed, renews) && !s.answersNew(v)
}

// asksSet reports whether the client has asked for something that can be answered.
func (s *sotwState) asksSet(v fanout.View) bool {
	subscribed, synced := v.Wildcard()
	s.wildcardAsked = s.wildcardAsked && subscribed
	if !subscribed && len(v.Names()) == 0 {
		s.setDue, s.shrink, s.members = false, false, false // nothing is due any more (row s)
	}
	return s.asked.len() > 0 || s.wildcardAsked && synced
}

// setNews says why a set may be due.
type setNews struct {
	comes   bool              // something may have come or changed
	goes    bool              // something may have gone
	renewed []*cache.Resource // resources whose TTL was renewed; they may have changed, too
}

// due reports whether there is something to send, and whether something has gone. same: the set is the last one
// again. It changed back, perhaps with other TTLs (ttls), or only answers without a resource changed.
func (n *setNews) due(same, ttls bool) (send, shrunk bool) {
	changed := n.comes && (!same || ttls)
	return changed || len(n.renewed) > 0, n.goes && !same
}

// setNews takes the reasons to look at the set, and lists the errors that go with it.
func (s *sotwState) setNews(v fanout.View, push bool, p *plan) setNews {
	n := setNews{comes: s.setDue || s.wildcardAsked, goes: s.shrink} // rows a, c, t
	s.memberNews(v, &n)
	s.members, s.setDue, s.shrink = false, false, false
	if s.wildcardAsked {
		s.version = ""
	}
	s.lookAgain(v)
	asked := distinct(s.asked.take())
	for _, id := range distinct(slices.Concat(asked, s.changed.take())) {
		if v.Has(id) && !s.doubts(v, id) { // it is marked again when the doubt is over
			_, asks := slices.BinarySearch(asked, id)
			s.nameNews(v, id, asks, &n, p)
		}
	}
	s.collectErrors(v, asked, p)
	if push && (s.renewed.len() > 0 || s.membersRenewed) {
		// The whole set is sent, since a client deletes a resource that comes without a body
		// (TTL-8).
		whole, heartbeats := s.renewals(v, p.from)
		n.renewed = slices.Concat(whole, heartbeats)
	}
	s.doubtOver = false
	return n
}

// memberNews adds what has changed in the wildcard's set.
func (s *sotwState) memberNews(v fanout.View, n *setNews) {
	if news := s.members || n.comes; !news || !whole(v) {
		return
	}
	n.goes = true // a removal is not remembered for this client (H-42), so any change may be one
	for c := range v.Set().Since(s.sentTo) {
		n.comes = n.comes || c.Resource != nil
	}
}

// nameNews adds what has changed of one name. The answer to a name, and the end of an error, are
// sent whether or not they change the set (DOWN-SOTW-5, ERR-8).
func (s *sotwState) nameNews(v fanout.View, id cache.ID, asks bool, n *setNews, p *plan) {
	switch a := v.Answer(id); a.State {
	case cache.Present:
		if asks || !s.copied(v, id) || s.mustResend(v, id, &a, func(*cache.Resource) bool { return false }) {
			s.version = ""
		}
		n.comes = true
	case cache.Absent:
		n.goes = n.goes || s.copied(v, id) // the set may become empty (DOWN-SOTW-9)
		s.answered(v.Name(id))
		s.collectError(v, id, p)
	case cache.Unknown:
		s.collectError(v, id, p)
	}
}

// gained returns the Clusters of the view that are new or changed for the client, and nothing for
// other types.
func (s *sotwState) gained(v fanout.View, version string) (changed []*cache.Resource) {
	if s.api != cache.Cluster || s.came == version && s.lastNonce == "" {
		return nil
	}
	after := s.sentTo
	if s.wildcardAsked || s.exact != nil || !s.inStep() {
		after = 0 // it may have had no copy of a member because of a name
	}
	for c := range v.Set().Since(after) {
		if wildcard(v) && c.Resource != nil && !s.holds(v, c.Resource) {
			changed = append(changed, c.Resource)
		}
	}
	for _, id := range v.Names() {
		for _, r := range v.Answer(id).Resources() {
			if !s.holds(v, r) {
				changed = append(changed, r)
			}
		}
	}
	return changed
}

// answersNew reports whether the set answers something that was not asked for before.
func (s *sotwState) answersNew(v fanout.View) bool {
	if s.wildcardAsked && s.awaited.has(fanout.Wildcard) {
		return true
	}
	for name := range s.awaited {
		if id, ok := v.Lookup(name); ok && v.Answer(id).State == cache.Present {
			return true
		}
	}
	return false
}

// delivered notes what the client holds with a set. If the set only removes, and waits for other
// types, it notes the names that go, for removedNow.
func (s *sotwState) delivered(v fanout.View, p *plan) {
	stays := leavingNames(s.stays)
	if !p.shrunk {
		s.renewedTo, s.renewedOf = p.position, nil
		s.holdsSet(v, p)
	}
	for _, id := range v.Names() {
		switch a := v.Answer(id); {
		case a.State == cache.Present:
			s.deliveredName(v, id, &a, p)
		case p.shrunk || !stays.has(v.Name(id)):
			s.deliveredGone(v, id, &a, p)
		}
	}
}

// holdsSet records that the client holds a whole set, and nothing else. While some Clusters stay in it that have
// left (ORDER-2), the positions do not pass their removal.
func (s *sotwState) holdsSet(v fanout.View, p *plan) {
	s.exact = nil
	if !wildcard(v) {
		return
	}
	if s.sentTo = p.position; len(s.stays) == 0 {
		s.removedTo = p.position
	}
	if len(v.Names()) > 0 {
		s.exact, s.removedTo = new(exact), unseen
		for _, r := range p.resources {
			s.exact.put(r.Name, r.Version, p.position)
		}
	}
}

// deliveredGone notes that a set does not have what a name led to.
func (s *sotwState) deliveredGone(v fanout.View, id cache.ID, a *cache.Answer, p *plan) {
	if v.Told(id).Copy() && a.State == cache.Absent {
		s.collectError(v, id, p) // the resource stayed for another name
	}
	if p.shrunk {
		p.goneIDs = append(p.goneIDs, id)
		return
	}
	v.Tell(id, fanout.ToldGone(p.position))
}

// deliveredName notes what the client holds with a set because of one name.
func (s *sotwState) deliveredName(v fanout.View, id cache.ID, a *cache.Answer, p *plan) {
	if !p.shrunk {
		v.Tell(id, fanout.ToldCopy(p.position))
	}
	if a.Error != nil { // the set alone would say that the error is over
		s.collectError(v, id, p)
	}
	s.clear(id, a)
	s.answered(v.Name(id))
}
