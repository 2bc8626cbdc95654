package session

import (
	"maps"
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// sotwState is the state-of-the-world variant for one type on one stream. For a
// full-state type every response is the whole view, since clients delete what is
// missing from it (DOWN-SOTW-6); for the others it is what is new.
type sotwState struct {
	exchange
	requested bool
	names     []string // of the newest request, sorted

	came string              // the version of the first request: what the client held then
	must map[string]struct{} // its names, if it had one
	// moved: the names have been others since.
	moved bool

	// Full-state types only.
	//
	// Nothing is said while a name is unresolved that the client may hold: one of
	// must, or one delivered on this stream (DOWN-SOTW-7).
	delivered map[string]struct{} // by name
	// mostDelivered is how many of them there may be beside two for each name that is
	// asked for (Bounds.Delivered).
	mostDelivered int
	sentAll       bool                // the wildcard has delivered who knows what
	version       string              // of the last response
	again         bool                // the view is owed, once it is certain
	news          map[string]struct{} // names of those that it will bring
	shrink        bool                // removals wait for other types (ORDER-2)
	outgoing      outgoing

	// warmedAt counts the cluster deliveries to this node when endpoints were
	// last answered (ORDER-5).
	warmedAt uint64
}

// request takes in one request of the type, for these names, each once and in order. warmed
// counts the deliveries of clusters to this node on streams other than this one (ORDER-5).
func (s *sotwState) request(req *discovery.DiscoveryRequest, names []string, warmed uint64, now time.Time) (v verdict) {
	first := !s.requested
	s.requested = true
	// A stale nonce says nothing, and a first request's belongs to another stream
	// (DOWN-SOTW-3, DOWN-SOTW-4); names count in any case (DOWN-SOTW-2).
	nonce := req.GetResponseNonce()
	acked := nonce != "" && nonce == s.lastNonce && !first
	repeated := acked && len(s.unacked) == 0 && req.GetErrorDetail() == nil
	if acked {
		v = s.verdict(nonce, req.GetErrorDetail(), now)
	}
	var asked fanout.Asked
	if same := slices.Equal(names, s.names); first || !same { // mostly they are: an ACK
		repeated = repeated && same
		s.moved = s.moved || !first
		asked = s.replace(names, first && req.GetVersionInfo() != "", now)
	}
	s.asked.add(asked.Names...)
	s.wildcardAsked = s.wildcardAsked || asked.Wildcard
	if first {
		s.warmedAt = warmed
		if s.full {
			s.delivered = make(map[string]struct{})
		}
		if s.came = req.GetVersionInfo(); s.came != "" {
			s.returning = s.url == cache.Cluster
			s.must = make(map[string]struct{}, len(names))
			for _, name := range names {
				s.must[name] = struct{}{}
			}
			if asked.Wildcard {
				s.must[fanout.Wildcard] = struct{}{}
			}
		}
	}
	if s.url == cache.Endpoint && warmed != s.warmedAt && repeated {
		s.warmedAt = warmed
		s.sub.Read(func(v fanout.View) { s.asked.add(v.Names()...) })
	}
	return v
}

// replace puts other names in the place of those asked for. came: the client came with something.
func (s *sotwState) replace(names []string, came bool, now time.Time) fanout.Asked {
	before := s.names
	s.names = names
	asked := s.sub.Replace(names, now)
	if s.full && !slices.Equal(names, before) {
		s.sub.Read(s.outgoing.giveUp)
	}
	s.awaitNew(before, asked.Wildcard, came)
	for name := range s.ties.of {
		if _, still := slices.BinarySearch(names, name); !still {
			s.ties.drop(name)
		}
	}
	return asked
}

// awaitNew notes what a request asks for that those before it did not, unless the client
// came with it.
func (s *sotwState) awaitNew(before []string, wildcard, came bool) {
	if !s.refers {
		return
	}
	for name := range s.awaited {
		if _, still := slices.BinarySearch(s.names, name); !still && name != fanout.Wildcard {
			s.answered(name)
		}
	}
	if came {
		return
	}
	for _, name := range s.names {
		if _, had := slices.BinarySearch(before, name); !had && name != fanout.Wildcard {
			s.await(name)
		}
	}
	if wildcard {
		s.await(fanout.Wildcard)
	}
}

// brought: the client came with something, of which it is not known what.
func (s *sotwState) brought(string) bool { return s.came != "" }

func (s *sotwState) holds(*cache.Resource) bool { return false }

func (s *sotwState) due() bool { return s.exchange.due() || s.again || s.shrink }

// collect is what there is to tell. push: changes too, not only answers.
func (s *sotwState) collect(v fanout.View, push bool) (p part) {
	p.position, p.pushed = v.Position(), push && !s.postpones
	s.returns(v, func(name string) bool { _, came := s.must[name]; return came })
	if s.full {
		s.collectFull(v, push, &p)
	} else {
		s.collectNew(v, push, &p)
	}
	if !s.full || !v.Husks() {
		s.expiring(v, &p)
	} // else nobody could renew the set without asking upstream for bodies each time
	p.starving = starving(v, s.brought)
	return p
}

// collectFull decides whether the whole view is to be sent, and lists it.
func (s *sotwState) collectFull(v fanout.View, push bool, p *part) {
	subscribed, synced := v.Wildcard()
	s.wildcardAsked = s.wildcardAsked && subscribed
	if !subscribed && len(v.Names()) == 0 {
		s.again, s.shrink, s.members, s.news = false, false, false, nil // nothing is owed any more (row s)
	}
	p.answer = s.asked.len() > 0 || s.wildcardAsked && synced
	if !push && !p.answer {
		return
	}
	send, beat := s.again || s.wildcardAsked, false // rows a, c, t
	shrunk := s.shrink
	if (s.members || send) && subscribed && synced {
		shrunk = true // if nothing has come; what has gone nobody remembers for this client (H-42)
		for c := range v.Members(s.told) {
			if c.Resource != nil {
				send = true
				p.changed = append(p.changed, c.Resource)
			}
		}
	}
	s.members, s.again, s.shrink = false, false, false
	s.lookAgain(v)
	for _, id := range distinct(slices.Concat(s.asked.take(), s.changed.take())) {
		if !v.Has(id) {
			continue
		}
		_, had := s.delivered[v.Name(id)]
		if s.doubts(v, id) {
			continue // it is marked again when it is certain
		}
		switch a := v.Answer(id); a.State {
		case cache.Present:
			send = true // DOWN-SOTW-5
			p.changed = append(p.changed, a.Resource)
		case cache.Absent:
			shrunk = shrunk || had // down to an empty set, if need be (DOWN-SOTW-9)
			delete(s.must, v.Name(id))
			delete(s.delivered, v.Name(id))
			s.answered(v.Name(id))
			s.collectError(v, id, p)
		case cache.Unknown:
			s.collectError(v, id, p)
		}
	}
	s.collectErrors(v, p)
	if push && (s.renewed.len() > 0 || s.membersRenewed) {
		// The whole set, since a client takes what comes without a body for gone (TTL-8).
		whole, beats := s.renewals(v)
		beat = len(whole)+len(beats) > 0 && !v.Husks()
		send = send || beat
	}
	s.handed = false

	resources, version, certain := s.view(v)
	s.postponed = s.postpones && certain && send && !beat && !s.answersNew(v)
	if !certain || s.spared(v, version) || s.postponed {
		s.again, s.shrink = send, shrunk
		for _, e := range slices.Concat(p.errors, p.unavailable) {
			if id, ok := v.Lookup(e.name); ok {
				s.failed.add(id)
			}
		}
		s.brings(p.changed)
		p.changed, p.errors, p.unavailable, p.answer = nil, nil, nil, false
		return
	}
	p.refuse(&s.exchange)
	shrunk = shrunk && version != s.version
	if !send && !shrunk && len(p.errors) == 0 && len(p.unavailable) == 0 {
		return
	}
	if len(s.news) > 0 {
		s.brings(p.changed)
		p.changed = slices.DeleteFunc(slices.Clone(resources), func(r *cache.Resource) bool {
			_, news := s.news[r.Name]
			return !news
		})
		s.news = nil
	}
	p.resources, p.version, p.must = resources, version, send
	p.news, _ = v.News(0)
	s.depart(v, p, shrunk && !send, push)
	s.wildcardAsked = false
	s.answered(fanout.Wildcard)
	s.version, s.told = p.version, p.position
	v.Handed(true) // they are among the resources
	s.deliver(v)
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

// brings notes what is news of the view that is owed: by name, since it may change
// again until then, or go.
func (s *sotwState) brings(changed []*cache.Resource) {
	if s.news == nil {
		s.news = make(map[string]struct{}, len(changed))
	}
	for _, r := range changed {
		s.news[r.Name] = struct{}{}
	}
}

// deliver notes what the client holds from now on.
func (s *sotwState) deliver(v fanout.View) {
	subscribed, _ := v.Wildcard()
	s.sentAll = s.sentAll || subscribed
	if len(s.delivered) > 2*len(v.Names())+s.mostDelivered {
		clear(s.delivered)
	}
	for _, id := range v.Names() {
		if v.Answer(id).State == cache.Present {
			s.delivered[v.Name(id)] = struct{}{}
			s.answered(v.Name(id))
		}
	}
}

// collectNew lists what is new or newly named. A removal is not told, save as an
// error (DOWN-SOTW-10, MISS-6).
func (s *sotwState) collectNew(v fanout.View, push bool, p *part) {
	if s.ends && s.spared(v, viewVersion(v, everything(v))) {
		return
	}
	subscribed, synced := v.Wildcard()
	switch {
	case !subscribed:
		s.wildcardAsked, s.members = false, false
	case !synced:
		s.members = false
	case s.wildcardAsked && s.keepsSet(v):
	case s.postpones && s.wildcardAsked && !s.awaits(fanout.Wildcard):
		s.postponed = true // the client came with something
	case s.postpones && !s.wildcardAsked && push && s.members && gainsMembers(s, v):
		s.postponed = true
	case s.wildcardAsked || push && s.members:
		after := s.told
		if s.wildcardAsked {
			after, p.must, p.answer = 0, true, true
		}
		for c := range v.Members(after) {
			if c.Resource != nil {
				p.resources = append(p.resources, c.Resource)
			}
		}
		slices.Reverse(p.resources)
		s.wildcardAsked, s.members, s.told = false, false, p.position
		s.answered(fanout.Wildcard)
	}
	asked := s.asked.take()
	if s.postpones {
		asked = postponeAsked(s, v, asked)
	}
	s.lookAgain(v)
	asked = s.keep(v, asked)
	p.answer = p.answer || len(asked) > 0
	s.collectNames(v, asked, true, p)
	if push {
		changed := s.changed.take()
		if s.postpones {
			changed = postpone(s, v, changed)
		}
		s.collectNames(v, changed, false, p)
		s.asked.drop(changed) // upstream has spoken of what was put off
	}
	if push && !s.postponed {
		members, _ := s.ties.collectLoose(v) // the rest goes silently (DOWN-SOTW-10)
		p.resources = append(p.resources, members...)
		s.namesTo, s.warmed = p.position, nil
		s.ahead = nil
	}
	p.resources, _ = bodies(v, p.resources)
	s.collectErrors(v, p)
	p.refuse(&s.exchange)
	if push {
		p.resources = append(p.resources, v.Handed(!s.postponed)...)
		s.handed = false
		s.collectRenewals(v, p)
	}
	if len(p.beats) > 0 {
		return
	}
	if len(p.resources) == 0 && len(p.errors) == 0 && len(p.unavailable) == 0 && !p.must {
		return
	}
	p.resources = unique(p.resources)
	s.ties.told(p.resources...)
	p.version = viewVersion(v, everything(v))
}

// keep puts names off of which the client came with a version of its own, and upstream
// has not confirmed another one (RECON-19), unless it is given that for another name.
func (s *sotwState) keep(v fanout.View, asked []cache.ID) []cache.ID {
	if len(s.must) == 0 || len(asked) == 0 && !s.handed {
		return asked
	}
	if s.replaces(v, viewVersion(v, everything(v))) {
		maps.DeleteFunc(s.must, func(name string, _ struct{}) bool {
			id, ok := v.Lookup(name)
			return !v.Doubted(name) && !(ok && v.Unanswered(id))
		})
		return asked
	}
	kept := func(id cache.ID) bool {
		_, came := s.must[v.Name(id)]
		return came && v.Has(id) && v.Warm(id)
	}
	given := make(map[*cache.Resource]bool)
	for _, id := range asked {
		for _, r := range v.Answer(id).Resources() {
			given[r] = given[r] || !kept(id)
		}
	}
	return slices.DeleteFunc(asked, func(id cache.ID) bool {
		late := kept(id) && slices.ContainsFunc(v.Answer(id).Resources(), func(r *cache.Resource) bool { return !given[r] })
		if late {
			s.asked.add(id)
		}
		return late
	})
}

// keepsSet puts the wildcard's set off in the same way.
func (s *sotwState) keepsSet(v fanout.View) bool {
	_, came := s.must[fanout.Wildcard]
	return came && v.WarmSet() && !s.replaces(v, viewVersion(v, everything(v)))
}

// collectNames lists what names lead to.
func (s *sotwState) collectNames(v fanout.View, ids []cache.ID, asked bool, p *part) {
	for _, id := range ids {
		if !v.Has(id) {
			continue
		}
		a := v.Answer(id)
		if a.State != cache.Present && s.doubts(v, id) {
			continue
		}
		if a.State != cache.Unknown {
			delete(s.must, v.Name(id)) // it is told what there is
		}
		if a.State != cache.Unknown {
			s.ties.lead(v.Name(id), &a)
			if asked {
				delete(s.warmed, id)
			}
			s.answered(v.Name(id))
		}
		if a.State == cache.Present {
			p.resources = slices.AppendSeq(p.resources, s.leadsTo(v.Name(id), &a, asked || s.warmed[id], p))
			if a.Resource.Husk() {
				s.failed.add(id) // it may not come just now
			}
		} else {
			s.collectError(v, id, p)
		}
	}
}

// collectRenewals: heartbeats go under the version that the client has accepted, and
// which they do not change (TTL-8, TTL-10). What goes under a new one has a body.
func (s *sotwState) collectRenewals(v fanout.View, p *part) {
	whole, beats := s.renewals(v)
	whole, _ = bodies(v, whole)
	p.resources = append(p.resources, whole...)
	if len(p.resources) == 0 && !p.must && s.accepted != "" {
		p.beats, p.version = unique(beats), s.accepted
		return
	}
	for _, r := range beats {
		if body := v.Body(r); body != nil {
			p.resources = append(p.resources, body)
		}
	}
}

// collectErrors: each error of a name once.
func (s *sotwState) collectErrors(v fanout.View, p *part) {
	for _, id := range s.failed.take() {
		if v.Has(id) {
			s.collectError(v, id, p)
		}
	}
}

// collectError: why a name is not there (MISS-6, ERR-9, ERR-7).
func (s *sotwState) collectError(v fanout.View, id cache.ID, p *part) {
	if _, again := p.erred[id]; again {
		return
	}
	if p.erred == nil {
		p.erred = make(map[cache.ID]struct{})
	}
	p.erred[id] = struct{}{}
	name, a := v.Name(id), v.Answer(id)
	if a.State == cache.Absent && a.Error == nil {
		why := notFound
		if a.Cause == cache.TTLExpired {
			why = expired
		}
		p.errors = append(p.errors, resourceErr{name, why})
		return
	}
	if a.Error != nil || !s.ends {
		p.collectError(v, id, s.mayHold(name))
	}
}

// later keeps the shrunk set, and the errors that go with it, for another flush.
func (s *sotwState) later(p *part) {
	s.shrink, s.version = true, ""
	s.failed.add(p.removedIDs...)
}

// removedNow notes that the shrunk set is told.
func (s *sotwState) removedNow(p *part) {
	if p.shrunk {
		s.departed(p.lasting)
	}
}
