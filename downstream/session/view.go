package session

import (
	"slices"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// The whole view of a SotW client, its version, and whether it may replace what the client has
// (DOWN-SOTW-6, -7, RECON-14, -19).

// view returns everything that the client subscribes to. certain is false while the client may
// hold something that is not resolved (DOWN-SOTW-7, H-5).
func (s *sotwState) view(v fanout.View) (resources []*cache.Resource, version string, certain bool) {
	subscribed, synced := v.Wildcard()
	if subscribed && !synced || s.keepsAll() {
		return nil, "", false
	}
	doubt := s.came != "" && s.lastNonce == "" && v.Set().Resolution(true) == fanout.InDoubt
	for _, id := range v.Names() {
		switch v.Resolution(id, s.mayHold(v, id)) {
		case fanout.InDoubt:
			doubt = true
		case fanout.Pending:
			if s.copied(v, id) {
				return nil, "", false
			}
		}
	}
	resources, version = everything(v), versionOf(v)
	certain = (!doubt || s.came == version) && !s.lacks(v)
	v.Withhold(!certain)
	return resources, version, certain
}

// lacks reports whether the wildcard's set lacks something that the client was sent for a name,
// perhaps only because the set is from disk (RECON-19) or a fault hides a part of it (ERR-10).
func (s *sotwState) lacks(v fanout.View) bool {
	if !wildcard(v) {
		return false
	}
	for e := range s.exact.all() {
		covered := subscribes(v, e.name) || v.Set().Member(e.name) != nil
		_, went := v.Set().Change(e.name) // by its TTL, or upstream has said so
		doubtful := v.Set().Restored() && !went || v.Doubted(e.name)
		if doubtful && !covered {
			return true
		}
	}
	return false
}

// restored reports whether something in the view was loaded from disk and is not confirmed.
func restored(v fanout.View) bool {
	if wildcard(v) && v.Set().Restored() {
		return true
	}
	return v.AnyRestored() && slices.ContainsFunc(v.Names(), v.Restored)
}

// everything returns the resources that the client's interest leads to, each once (DOWN-SOTW-14).
func everything(v fanout.View) (resources []*cache.Resource) {
	if n, alone := v.Set().News(0); wildcard(v) && alone {
		return n.Resources
	}
	if wildcard(v) { // the members that no name leads to, oldest change first
		for c := range v.Set().Since(0) {
			if c.Resource != nil {
				resources = append(resources, c.Resource)
			}
		}
		slices.Reverse(resources)
	}
	if len(v.Names()) == 0 {
		return resources
	}
	for _, id := range v.Names() {
		resources = append(resources, v.Answer(id).Resources()...)
	}
	return resources
}

// sentVersion returns the version of what the client was sent: of the view without what waits, is
// put off or is left out, which the client does not hold (RECON-14). Mostly there is no such
// thing, and nothing has to be looked up.
func (s *sotwState) sentVersion(v fanout.View) string {
	if owes := s.pending() || s.owesAnswers(); !owes && !s.behind {
		return versionOf(v)
	}
	s.behind = false
	var told cache.Digest
	for _, r := range everything(v) {
		if s.holds(v, r) {
			told.Add(r)
		} else {
			s.behind = true
		}
	}
	return told.String()
}

// versionOf returns the version of everything that the client's interest leads to: the digest of
// these resources (RECON-14). It is never empty (DOWN-SOTW-11).
func versionOf(v fanout.View) string {
	if version, known := v.Digest(); known {
		return version
	}
	var digest cache.Digest
	for _, r := range everything(v) {
		digest.Add(r)
	}
	return digest.String()
}

// mayHold reports whether the client came with a version, asked for a name in its first request,
// and may still have what it came with, since no set was sent to it.
func (s *sotwState) mayHold(v fanout.View, id cache.ID) bool {
	toldAll := s.sets && s.lastNonce != ""
	return s.came != "" && !toldAll && v.Told(id).FromBefore()
}

// lookAgain marks names that the client came with and whose resource is gone, when a doubt may be
// over.
func (s *sotwState) lookAgain(v fanout.View) {
	if !s.doubtOver || s.came == "" {
		return
	}
	for _, id := range v.Names() {
		if v.Told(id).FromBefore() && v.Resolution(id, true) == fanout.Absent {
			s.changed.add(id)
		}
	}
}

// doubts reports whether the answer to a name is in doubt for a client that may hold its
// resource.
func (s *sotwState) doubts(v fanout.View, id cache.ID) bool {
	return s.mayHold(v, id) && v.Answer(id).State != cache.Present && v.Resolution(id, true) == fanout.InDoubt
}
