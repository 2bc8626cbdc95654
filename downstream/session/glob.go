package session

import (
	"iter"
	"slices"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// A glob is a name that leads to what it covers (NAME-11). The record of a client that was sent members is exact:
// of these it is sent what it does not hold, as of the wildcard's set.

// collectGlob lists the answer to a glob that was asked for, or what has changed of it.
func (d *deltaState) collectGlob(v fanout.View, id cache.ID, asked bool, p *plan) {
	a := v.Answer(id)
	if asked && (a.Error != nil || a.State == cache.Unknown) {
		d.failed.add(id) // H-27
	}
	forced := asked || d.mustResend(v, id, &a, func(*cache.Resource) bool { return false })
	d.collectCovered(v, id, forced, p)
	if a.State == cache.Unknown {
		return // it is marked again when it has an answer
	}
	p.answer = p.answer || asked
	d.answered(v.Name(id))
	switch {
	case a.State == cache.Present:
		v.Tell(id, fanout.ToldCopy(p.position))
	case d.collectAbsence(v, id, &a, asked, forced, p): // NAME-12
		return // it waits, and is cleared when the removal is sent
	}
	d.clear(id, &a)
}

// collectCovered lists the members of a glob that have changed since the client was last sent some, or all that
// exist, and has those looked at that have left.
func (d *deltaState) collectCovered(v fanout.View, id cache.ID, all bool, p *plan) {
	d.expand(v)
	after := v.Told(id).At()
	if all {
		after = 0
	}
	first := len(p.resources)
	for c := range v.Members(id, after) {
		d.reconcileWith(v, c.Name, c.Resource, d.exact.lookUp(c.Resource.Hash, c.Name), all, p)
	}
	slices.Reverse(p.resources[first:]) // in the order in which they changed
	if d.exact.count == 0 {
		return
	}
	left, known := v.Left(id, after)
	d.touched.all = d.touched.all || !known
	for name := range left {
		if d.exact.find(name) != nil {
			d.touched.names.add(name)
		}
	}
}

// news yields the resources to which a name leads, and of those that a glob covers what has changed since the client
// was last sent some.
func news(v fanout.View, id cache.ID) iter.Seq[*cache.Resource] {
	if !v.Glob(id) {
		return v.Leading(id)
	}
	return func(yield func(*cache.Resource) bool) {
		for c := range v.Members(id, v.Told(id).At()) {
			if !yield(c.Resource) {
				return
			}
		}
	}
}

// contains reports whether such is true of any of some resources.
func contains(resources iter.Seq[*cache.Resource], such func(*cache.Resource) bool) bool {
	for r := range resources {
		if such(r) {
			return true
		}
	}
	return false
}

// withMembers returns names, with what the client may have because of a glob among them in the globs' place.
func (g *givenUp) withMembers(names []string) []string {
	others, globs := withoutGlobs(names)
	if len(globs) == 0 {
		return names
	}
	left := make(nameSet, len(globs))
	for _, glob := range globs {
		left.add(glob)
	}
	all := slices.Clone(others)
	for member := range g.names {
		if glob := cache.GlobOf(member); member != glob && left.has(glob) {
			all = append(all, member)
		}
	}
	return distinct(all)
}

// A SotW client is not served globs: each is answered with an error, and nothing that its client came with is
// removed, since nobody knows what the client takes the glob to lead to.

// withoutGlobs separates globs from other names. Without globs the list is the same.
func withoutGlobs(names []string) (others, globs []string) {
	if !slices.ContainsFunc(names, cache.IsGlob) {
		return names, nil
	}
	for _, name := range names {
		if cache.IsGlob(name) {
			globs = append(globs, name)
		} else {
			others = append(others, name)
		}
	}
	return others, globs
}

// refuse takes in the names of a SotW request that are not served, and reports whether some are new. Each
// request repeats them, and each is refused once (DOWN-SOTW-13).
func (s *sotwState) refuse(unserved []string) (some bool) {
	added := missingFrom(unserved, s.unserved)
	s.refused.drop(missingFrom(s.unserved, unserved))
	s.refused.add(added...)
	s.unserved = unserved
	return len(added) > 0
}

// asksGlob reports whether a SotW client asks for a glob.
func (s *sotwState) asksGlob() bool { return slices.ContainsFunc(s.unserved, cache.IsGlob) }

// keepsAll reports whether a SotW client is sent no set, because the set would take away what the
// client came with: it asks for something that the relay does not serve.
func (s *sotwState) keepsAll() bool {
	refused := s.refusal != nil && s.refusal.notice == NoticeNothing || s.denied.has(fanout.Wildcard)
	untouched := s.came != "" && s.lastNonce == ""
	return refused || untouched && s.asksGlob()
}

// tellGlobs makes news of it that a client asks for globs, once for each stream and type, and once
// more if the client learns nothing of them.
func (s *Session) tellGlobs(w *sotwState, globs []string) {
	told := NoticeErrors
	if w.sets && w.keepsAll() {
		told = NoticeNothing
	}
	known := w.globsTold == told || w.globsTold == NoticeNothing
	if len(globs) == 0 || w.refusal != nil || known {
		return
	}
	w.globsTold = told
	s.refusals = append(s.refusals, Refusal{
		Type: w.url, Reason: Glob, Message: noGlob.GetMessage(), Notice: told,
		Glob: globs[0], Group: w.group.Hub.Name(), First: w.group.Hub.FirstGlob(),
	})
}
