package session

import (
	"slices"
	"time"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// part is what one type has to say in one flush.
type part struct {
	// Now: what goes first.
	resources []*cache.Resource
	news      *fanout.News      // that the resources began with, if they are shared
	beats     []*cache.Resource // without their bodies (TTL-4)
	spared    []*cache.Resource // not sent, since the client came with them (TTL-5)
	changed   []*cache.Resource // those of the resources that are news (ORDER-4)
	gone      []string          // removals that answer a request
	errors    []resourceErr
	erred     map[cache.ID]struct{} // SotW: the names whose errors have been looked for
	must      bool                  // send, even if it lists nothing
	mixed     bool                  // resources come from more than one source
	answer    bool                  // it answers this client alone
	pushed    bool                  // changes are in it, and not only answers
	undecided bool                  // the client came with versions that refer to Clusters, and cannot be judged yet

	// Later: removals that other types' additions precede (ORDER-2).
	removed        []string
	removedIDs     []cache.ID // the subscribed names behind them, if any; SotW: those with errors
	removedMembers bool       // some of them left the wildcard
	removedNames   []string   // those that the client's interest covers no more, or not at all
	shrunk         bool       // SotW: the set, without what is gone, and the errors of that
	goneIDs        []cache.ID // the subscribed names that are not in it

	// unavailable: names that cannot be resolved just now, and why (ERR-7).
	unavailable []resourceErr
	starving    *statuspb.Status

	leftOut map[string]leftOut // by name, what is too large for the client (ERR-13)

	version  string
	position cache.Seq
	from     cache.Seq                     // how far the client had been told of the wildcard's set
	ends     map[*cache.Resource]time.Time // of what has a TTL
}

type resourceErr struct {
	name   string
	status *statuspb.Status
}

// early: there is something to say now.
func (p *part) early() bool {
	return p.must || len(p.resources) > 0 && !p.shrunk || len(p.beats) > 0 || len(p.gone) > 0 ||
		len(p.errors) > 0 && !p.shrunk || len(p.leftOut) > 0
}

// late: there is something to take away.
func (p *part) late() bool { return len(p.removed) > 0 || p.shrunk }

// withoutContradiction: no response names a resource twice (DOWN-DELTA-12).
func (p *part) withoutContradiction() {
	listed := namesOf(p.resources, p.beats)
	p.gone = slices.DeleteFunc(p.gone, listed.add)
	p.removed = slices.DeleteFunc(slices.Clone(p.removed), listed.add) // it may be shared
}

func (p *part) refuse(x *exchange) {
	for _, name := range x.refused.take() {
		p.errors = append(p.errors, resourceErr{name, noLocate})
	}
}

// failAgain has errors that are not sent now looked for once more.
func (x *exchange) failAgain(v fanout.View, errors []resourceErr) {
	for _, e := range errors {
		if id, ok := v.Lookup(e.name); ok && e.status != noLocate {
			x.failed.add(id)
		} else {
			x.refused.add(e.name)
		}
	}
}

// collectError says why a name is not there, and reports whether that is upstream's word.
// brought: the client came with a copy of it, or may have.
func (p *part) collectError(v fanout.View, id cache.ID, brought bool) bool {
	a := v.Answer(id)
	if a.Error != nil {
		p.errors = append(p.errors, resourceErr{v.Name(id), a.Error})
		return true
	}
	if named, _ := v.Unavailable(); named != nil && waits(v, id, brought) {
		p.unavailable = append(p.unavailable, resourceErr{v.Name(id), named})
	}
	return false
}

// waits: the client waits for what a name leads to. Nobody does for what is in doubt.
func waits(v fanout.View, id cache.ID, brought bool) bool {
	return v.Bodies().Lacks(id) && v.Verdict(id, brought) != fanout.Doubt
}

// starving is why something the client waits for cannot be had just now, or nil
// (ERR-7). brought says of which names it came with a copy, or may have.
func starving(v fanout.View, brought func(name string) bool) *statuspb.Status {
	named, wildcard := v.Unavailable()
	if wildcard != nil && v.Set().Lacks() {
		return wildcard
	}
	if named != nil {
		for _, id := range v.Names() {
			if v.Bodies().Lacks(id) && waits(v, id, brought(v.Name(id))) {
				return named
			}
		}
	}
	return nil
}

var (
	expired  = &statuspb.Status{Code: cache.NotFound, Message: "xds-relay: the resource's TTL ran out; the control plane has not renewed it"}
	notFound = &statuspb.Status{Code: cache.NotFound, Message: "xds-relay: the control plane does not know this resource"}
	noLocate = &statuspb.Status{Code: 12, Message: "xds-relay: resource_locators are not served yet; subscribe by resource name"}
)

func hasAliases(resources []*cache.Resource) bool {
	return slices.ContainsFunc(resources, func(r *cache.Resource) bool { return len(r.Aliases) > 0 })
}

// unique keeps the first of the resources that bear one name.
func unique(resources []*cache.Resource) []*cache.Resource { return besides(nil, resources) }

// besides are those of the resources that bear no name of the listed ones, each
// name once.
func besides(listed, resources []*cache.Resource) []*cache.Resource {
	if len(resources) == 0 {
		return nil
	}
	seen := make(nameSet, len(listed)+len(resources))
	for _, r := range listed {
		seen.add(r.Name)
	}
	return slices.DeleteFunc(resources, func(r *cache.Resource) bool { return seen.add(r.Name) })
}

// nameSet are the names that some resources bear.
type nameSet map[string]struct{}

func namesOf(lists ...[]*cache.Resource) nameSet {
	n := 0
	for _, list := range lists {
		n += len(list)
	}
	names := make(nameSet, n)
	for _, list := range lists {
		for _, r := range list {
			names.add(r.Name)
		}
	}
	return names
}

// add reports whether the name was there before.
func (s nameSet) add(name string) (again bool) {
	_, again = s[name]
	s[name] = struct{}{}
	return again
}

func (s nameSet) has(name string) bool {
	_, has := s[name]
	return has
}
