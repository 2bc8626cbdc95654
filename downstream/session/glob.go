package session

import (
	"slices"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Globs are not served yet (NAME-11). Each is answered with an error, and nothing that its client
// came with is removed, since nobody knows what the glob leads to. Globs are taken out of requests.
// A simpler-looking way is to make them names with an error in the Hub, but they would have to be
// left out of all that goes upstream, where a request with nothing else asks for everything.

// globInterest is what a client asks for of a type by globs.
type globInterest struct {
	globs     nameSet // a Delta client's
	globsTold Notice  // what news there was of them
}

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

// takeGlobs takes in the globs that a Delta request asks for and those that it gives up.
func (d *deltaState) takeGlobs(asked, given []string) {
	for _, glob := range asked {
		put(&d.globs, cache.GlobOf(cache.Canonical(glob)), struct{}{})
	}
	d.refused.drop(distinct(slices.Clone(given)))
	gone := make(nameSet)
	for _, glob := range given {
		if glob = cache.GlobOf(cache.Canonical(glob)); d.globs.has(glob) {
			gone.add(glob)
			drop(&d.globs, glob)
		}
	}
	if len(gone) > 0 {
		d.sub.Read(func(v fanout.View) { d.leaveGlobs(v, gone) })
	}
}

// leaveGlobs takes in that globs are given up. What the client had because of them it drops, or the
// wildcard covers it (WILD-8).
func (d *deltaState) leaveGlobs(v fanout.View, gone nameSet) {
	for e := range d.exact.all() {
		covered := subscribes(v, e.name) || v.Leads(e.name) || d.mayCover(v, e.name)
		switch {
		case covered:
		case !wildcard(v):
			d.exact.remove(e.name)
			drop(&d.touched.resend, e.name)
		case gone.has(cache.GlobOf(e.name)):
			put(&d.touched.resend, e.name, struct{}{})
		}
	}
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

// noticeOfGlobs returns what a SotW client learns of its globs.
func (s *sotwState) noticeOfGlobs() Notice {
	if s.sets && s.keepsAll() {
		return NoticeNothing
	}
	return NoticeErrors
}

// tellGlobs makes news of it that a client asks for globs, once for each stream and type, and once
// more if the client learns nothing of them.
func (s *Session) tellGlobs(x *exchange, globs []string, told Notice) {
	known := x.globsTold == told || x.globsTold == NoticeNothing
	if len(globs) == 0 || x.refusal != nil || known {
		return
	}
	x.globsTold = told
	s.refusals = append(s.refusals, Refusal{
		Type: x.url, Reason: Glob, Message: noGlob.GetMessage(), Notice: told,
		Glob: globs[0], Group: x.group.Hub.Name(), First: x.group.Hub.FirstGlob(),
	})
}
