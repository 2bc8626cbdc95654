package session

import (
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// sotwState is the state of one type on a SotW stream. For a full-state type every response is
// the whole view, since clients delete what it lacks (DOWN-SOTW-6); for other types it is what is
// new.
type sotwState struct {
	exchange
	names []string // of the newest request, each once, in its order

	// came is the version_info of the first request. The client then held something for each of
	// its names, and the wildcard's set if it asked for that (cameWildcard).
	came         string
	cameWildcard bool
	// moved says that the client has asked for other names since.
	moved bool
	// behind says that the client held less than the whole view, or may have, when the version of
	// what it was sent was last computed. Types that are not full-state only.
	behind bool
	// globsTold is what news there was of the client's globs.
	globsTold Notice

	// Full-state types only.
	version string // of the last set; "" if the next one is sent even if its version is the same
	setDue  bool   // the set must be sent, once it is certain
	shrink  bool   // removals wait for other types (ORDER-2)
	turn    turn
	stays   []fanout.Leaving // Clusters that the last set listed although they had left (ORDER-2)

	// deliveriesAt counts the deliveries of Clusters to this node when endpoints were last answered
	// (ORDER-5).
	deliveriesAt uint64
}

// request takes in one request of the type, for these names. delivered counts the deliveries of
// Clusters to this node on streams other than this one (ORDER-5).
func (s *sotwState) request(req *discovery.DiscoveryRequest, names named, delivered uint64, now time.Time) Note {
	first, note := !s.requested, Note{Type: s.url, Kind: SubscribeRequest}
	s.requested = true
	// A stale nonce says nothing, and that of a first request belongs to another stream
	// (DOWN-SOTW-3, DOWN-SOTW-4); names take effect in any case (DOWN-SOTW-2).
	nonce := req.GetResponseNonce()
	acked := nonce != "" && nonce == s.lastNonce && !first
	same := req.GetErrorDetail() == nil && !names.changed
	repeated := acked && same && len(s.unacked) == 0
	if acked {
		note = s.takeAck(nonce, req.GetErrorDetail(), now)
	}
	var asked fanout.Asked
	if first || names.changed {
		s.moved = s.moved || !first
		asked = s.replace(names, first && req.GetVersionInfo() != "", now)
		note.Unasked = asked.Unasked
	}
	s.names = names.listed
	s.asked.add(asked.Names...)
	s.wildcardAsked = s.wildcardAsked || asked.Wildcard
	if first {
		note.Kind = InitialRequest
		s.deliveriesAt = delivered
		if s.came = req.GetVersionInfo(); s.came != "" {
			s.comesBack(asked.Wildcard)
		}
	}
	if s.api == cache.Endpoint && delivered != s.deliveriesAt && repeated {
		s.deliveriesAt = delivered
		s.sub.Read(func(v fanout.View) { s.asked.add(v.Names()...) })
	}
	return note
}

// comesBack notes that the client holds everything that it asks for first, in unknown versions.
func (s *sotwState) comesBack(all bool) {
	s.sub.Returns()
	s.returning, s.cameWildcard, s.behind = s.api == cache.Cluster, all, true
	s.sub.Read(func(v fanout.View) {
		for _, id := range v.Names() {
			v.Tell(id, fanout.Brought)
		}
	})
}

// replace replaces the names that are asked for. came says that the client came with something.
func (s *sotwState) replace(names named, came bool, now time.Time) fanout.Asked {
	s.sub.Read(func(v fanout.View) {
		if s.willMix(v, names) {
			s.expand(v, names.Added...)
		}
		for _, name := range names.Gone {
			if id, ok := v.Lookup(name); ok {
				drop(&s.erred, id) // IDs may be reused soon
			}
		}
	})
	asked := s.sub.Replace(names.Names, now)
	s.sub.Read(func(v fanout.View) {
		if s.cameWildcard && s.lastNonce == "" { // it may have come with what it names now
			for _, name := range names.Added {
				id, _ := v.Lookup(name)
				v.Tell(id, fanout.Brought)
			}
		}
		if !wildcard(v) {
			s.cameWildcard = false
			s.sentTo, s.removedTo = 0, unseen
			s.forget(v, func(*entry) bool { return false })
			s.touched.resend, s.touched.left = nil, pile[string]{}
		} else if len(names.Gone) > 0 {
			s.fallsBack(v, names.Gone)
		}
	})
	s.awaitNew(names, asked.Wildcard, came)
	return asked
}

// willMix reports whether the client has names and the wildcard together before or after a request.
func (s *sotwState) willMix(v fanout.View, names named) bool {
	all := wildcard(v) || names.Wildcard
	return all && len(v.Names())+len(names.Added) > 0
}

// fallsBack has the client sent the wildcard's state of names that it gives up. A full-state set says it by itself.
func (s *sotwState) fallsBack(v fanout.View, gone []string) {
	if s.sets {
		s.setDue = true
		return
	}
	for _, name := range gone {
		if s.exact.find(name) != nil || v.Set().Member(name) != nil {
			put(&s.touched.resend, name, struct{}{})
			s.touched.left.add(name)
		}
	}
}

// awaitNew notes what a request asks for that earlier ones did not, unless the client came with it.
func (s *sotwState) awaitNew(names named, all, came bool) {
	for _, name := range names.Gone {
		s.answered(name)
	}
	if came {
		return
	}
	for _, name := range names.Added {
		s.await(name)
	}
	if all {
		s.await(fanout.Wildcard)
	}
}

// claims reports whether the client came with something; nobody knows with what.
func (s *sotwState) claims(string) bool { return s.came != "" }

func (s *sotwState) due() bool { return s.exchange.due() || s.setDue || s.shrink }

// collect lists what is to be sent.
func (s *sotwState) collect(v fanout.View, push bool, p *plan) {
	if s.sets {
		s.collectFull(v, push, p)
	} else {
		s.collectNew(v, push, p)
	}
	s.expiring(v, p)
	s.starving = starving(v, s.claims)
}

// collectNew lists what is new or newly named. A removal is not sent, except as an error
// (DOWN-SOTW-10, MISS-6).
func (s *sotwState) collectNew(v fanout.View, push bool, p *plan) {
	if s.waitsForReturn(v) {
		return
	}
	if s.waitsForCDS && s.returns() && offers(s, v) { // what was brought waits for Clusters (ORDER-13)
		s.heldForCDS = true
		return
	}
	s.surveys(v, push)
	s.collectMembers(v, push, p)
	asked := holdForCDS(s, v, s.asked.take(), true)
	s.lookAgain(v)
	asked = s.keep(v, asked)
	p.answer = p.answer || slices.ContainsFunc(asked, func(id cache.ID) bool { return v.Has(id) && !s.doubts(v, id) && v.Answer(id).State != cache.Unknown })
	s.collectNames(v, asked, true, p)
	if push {
		changed := holdForCDS(s, v, s.changed.take(), false)
		s.collectNames(v, changed, false, p)
		s.asked.drop(changed) // upstream has answered what was put off
	}
	s.reconcileTouched(v, push, p)
	s.renewsAhead(v, p, nil)
	if push {
		s.doubtOver = false
		s.collectRenewals(v, p)
	}
	s.collectErrors(v, asked, p)
	p.refuse(&s.exchange)
	if len(p.heartbeats) > 0 || len(p.resources)+len(p.errors)+len(p.unavailable)+len(p.leftOut) == 0 && !p.must {
		return
	}
	p.resources = unique(p.resources)
	for _, r := range p.resources {
		s.sent(r, p.position)
	}
	s.behind = s.behind || len(p.leftOut) > 0
	p.version = s.sentVersion(v)
}

// collectMembers lists what is new in the wildcard's set, or the whole set if it was asked for.
func (s *sotwState) collectMembers(v fanout.View, push bool, p *plan) {
	subscribed, synced := v.Wildcard()
	switch {
	case !subscribed:
		s.wildcardAsked, s.members = false, false
	case !synced:
		s.members = false
	case s.wildcardAsked:
		s.collectAll(v, p)
	case push && s.members:
		if s.heldForCDS = s.waitsForCDS && gainsMembers(s, v); !s.heldForCDS {
			s.collectChanges(v, s.sentTo, p)
		}
	}
}

// collectAll lists the whole set, unless the client keeps what it came with for now.
func (s *sotwState) collectAll(v fanout.View, p *plan) {
	if s.cameWildcard && v.Set().Restored() && s.came != versionOf(v) { // RECON-19
		return
	}
	p.must, p.answer = true, true
	s.collectChanges(v, 0, p)
}

// collectChanges lists what has changed in the set after a position, and passes it.
func (s *sotwState) collectChanges(v fanout.View, after cache.Seq, p *plan) {
	if s.exact != nil {
		s.reconcileMembers(v, s.wildcardAsked, p)
	} else {
		for c := range v.Set().Since(after) {
			if c.Resource != nil && !s.leavesOut(v, c.Resource, p) {
				p.resources = append(p.resources, c.Resource)
			}
		}
		slices.Reverse(p.resources)
	}
	s.wildcardAsked, s.members, s.sentTo = false, false, p.position
	if s.exact == nil {
		s.removedTo = p.position
	}
	s.answered(fanout.Wildcard)
}

// keep puts off the names of which the client came with a version and upstream has not confirmed
// another (RECON-19).
func (s *sotwState) keep(v fanout.View, asked []cache.ID) []cache.ID {
	if looks := len(asked) > 0 || s.doubtOver; !looks || !s.cameWithOther(v) {
		return asked
	}
	return slices.DeleteFunc(asked, func(id cache.ID) bool {
		kept := v.Told(id).FromBefore() && v.Restored(id) && v.Answer(id).State == cache.Present
		if kept {
			s.asked.add(id)
		}
		return kept
	})
}

// cameWithOther reports whether the client came with something else than what is here, some of which is from disk only.
func (s *sotwState) cameWithOther(v fanout.View) bool {
	return s.came != "" && restored(v) && s.came != versionOf(v)
}

// collectNames lists what names lead to now, so that no earlier mark of theirs is looked at again.
func (s *sotwState) collectNames(v fanout.View, ids []cache.ID, asked bool, p *plan) {
	s.changed.drop(ids)
	for _, id := range ids {
		if v.Has(id) && !s.doubts(v, id) {
			s.collectName(v, id, asked, p)
		}
	}
}

// collectName lists what one name leads to, or why it leads to nothing.
func (s *sotwState) collectName(v fanout.View, id cache.ID, asked bool, p *plan) {
	a, name := v.Answer(id), v.Name(id)
	forced := asked || s.mustResend(v, id, &a, func(r *cache.Resource) bool { return !s.holds(v, r) })
	if a.State != cache.Unknown {
		s.clear(id, &a)
		s.answered(name)
	} else if asked && s.moved { // the answer is sent whatever the client had of it before
		v.SendAgain(id)
	}
	switch {
	case a.State == cache.Present:
		s.collectCopies(v, id, &a, forced, p)
		if asked && a.Error != nil {
			s.failed.add(id) // H-27
		}
		return
	case a.State == cache.Absent:
		v.Tell(id, fanout.ToldGone(p.position))
		s.removed(name) // the client learns that it is gone
	}
	if _, told := s.erred[id]; asked || !told && a.State == cache.Absent { // collectErrors lists an error that is new
		s.collectError(v, id, p)
	}
}

// collectRenewals lists the renewed TTLs. Heartbeats go under the version that the client has
// accepted, which they do not change (TTL-8, TTL-10). Under a new version the bodies go with
// them.
func (s *sotwState) collectRenewals(v fanout.View, p *plan) {
	whole, heartbeats := s.renewals(v, p.from)
	if len(p.resources)+len(whole) == 0 && !p.must && s.accepted != "" {
		p.heartbeats, p.version = unique(heartbeats), s.accepted
		return
	}
	whole = besides(p.resources, slices.Concat(whole, heartbeats))
	p.resources = append(p.resources, s.fitting(v, whole, p)...)
}

// collectErrors lists each error of a name once, also of names that are asked for and in doubt (H-27). One that
// says that there is no such resource is the name's answer, too (MISS-6), except with full sets, which say that themselves.
func (s *sotwState) collectErrors(v fanout.View, asked []cache.ID, p *plan) {
	for _, id := range asked {
		if v.Has(id) && v.Answer(id).Error != nil && s.doubts(v, id) {
			s.failed.add(id)
		}
	}
	for _, id := range s.tellable(v, p) {
		if v.Answer(id).State == cache.Absent && !s.sets && !s.doubts(v, id) {
			s.collectNames(v, []cache.ID{id}, false, p)
		}
		s.collectError(v, id, p)
	}
}

// collectError lists why a name has no resource (MISS-6, ERR-9, ERR-7).
func (s *sotwState) collectError(v fanout.View, id cache.ID, p *plan) {
	if _, again := p.erred[id]; again {
		return
	}
	put(&p.erred, id, struct{}{})
	name, a := v.Name(id), v.Answer(id)
	if a.State == cache.Absent && a.Error == nil {
		why := notFound
		if a.Cause == cache.TTLExpired {
			why = expired
		}
		p.fail(name, why)
		return
	}
	if a.Error != nil || !s.ends {
		if p.collectError(v, id, s.mayHold(v, id)) {
			put(&s.erred, id, struct{}{})
		}
	}
}

// later keeps the shrunk set, and the errors that go with it, for another response.
func (s *sotwState) later(p *plan) {
	s.shrink, s.version = true, ""
	s.failed.add(p.removedIDs...)
}

// removedNow notes that the shrunk set is sent. It lists the rest as it is now: something may have
// gone and come back as it was.
func (s *sotwState) removedNow(p *plan) {
	s.stays, s.staysSince = nil, time.Time{}
	s.sub.Read(func(v fanout.View) {
		s.holdsSet(v, p)
		for _, id := range v.Names() {
			if v.Told(id).Copy() {
				v.Tell(id, fanout.ToldCopy(p.position))
			}
		}
		for _, id := range p.goneIDs {
			v.Tell(id, fanout.ToldGone(p.position))
		}
	})
}
