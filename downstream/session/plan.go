package session

import (
	"slices"
	"time"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// plan is what one type has to send in one response.
type plan struct {
	// What goes first:
	resources  []*cache.Resource
	news       *fanout.News      // the shared beginning of the resources, if they have one
	heartbeats []*cache.Resource // without bodies (TTL-4)
	spared     []*cache.Resource // not sent because the client came with them (TTL-5)
	changed    []*cache.Resource // the resources that are new or changed for the client (ORDER-4)
	gone       []string          // removals that answer a request
	errors     []resourceErr
	mute       bool                  // the client cannot be told of errors (V2-3)
	erred      map[cache.ID]struct{} // SotW: the names whose errors were looked up
	must       bool                  // the response is sent even if it lists nothing
	answer     bool                  // the response answers this client alone
	pushed     bool                  // it has changes, and not only answers

	removals

	// unavailable has the names that cannot be resolved just now, and the reason (ERR-7).
	unavailable []resourceErr

	leftOut map[string]leftOut // resources that are too large for the client, by name (ERR-13)

	version  string
	position cache.Seq
	from     cache.Seq                     // the position up to which the client had been sent the wildcard's set
	ends     map[*cache.Resource]time.Time // when resources with a TTL expire
}

// removals are those of a part. Of most types they go later than the additions of other types (ORDER-2).
type removals struct {
	removed        []string
	removedIDs     []cache.ID // the subscribed names behind them, if any; SotW: the names with errors
	removedMembers bool       // some of them are members that left the wildcard's set
	removedNames   []string   // those that no subscribed name is
	shrunk         bool       // SotW: the set without what is gone, and the errors of that
	goneIDs        []cache.ID // the subscribed names that the set does not have
}

type resourceErr struct {
	name   string
	status *statuspb.Status
}

// early reports whether there is something to send that does not wait for other types.
func (p *plan) early() bool {
	n := len(p.heartbeats) + len(p.gone)
	if !p.mute {
		n += len(p.leftOut)
	}
	if !p.shrunk { // else they wait with the removals
		n += len(p.resources) + len(p.errors)
	}
	return p.must || n > 0
}

// fail adds the error of a name, if the client can be told of it.
func (p *plan) fail(name string, why *statuspb.Status) {
	if !p.mute {
		p.errors = append(p.errors, resourceErr{name, why})
	}
}

// late reports whether there is something to remove.
func (p *plan) late() bool { return len(p.removed) > 0 || p.shrunk }

// withoutContradiction drops removals so that no response names a resource twice (DOWN-DELTA-12), and returns them.
func (p *plan) withoutContradiction() (dropped []string) {
	listed := namesOf(p.resources, p.heartbeats)
	contradicts := func(name string) bool {
		again := listed.add(name)
		if again {
			dropped = append(dropped, name)
		}
		return again
	}
	p.gone = slices.DeleteFunc(p.gone, contradicts)
	p.removed = slices.DeleteFunc(slices.Clone(p.removed), contradicts) // the list may be shared
	return dropped
}

func (p *plan) refuse(x *exchange) {
	for _, name := range x.refused.take() {
		why := noLocate
		switch {
		case x.denied.has(name):
			why = notAllowed
		case cache.IsGlob(name):
			why = noGlob
		}
		p.fail(name, why)
	}
	x.excess.tell(p)
}

// failAgain keeps errors that are not sent now for the next response.
func (x *exchange) failAgain(v fanout.View, errors []resourceErr) {
	for _, e := range errors {
		if id, ok := v.Lookup(e.name); ok && e.status != noLocate {
			x.failed.add(id)
		} else {
			x.refused.add(e.name)
		}
	}
}

// collectError lists why a name has no resource, and reports whether the client is told an error of upstream's.
// brought says that the client came with a copy of the resource, or may have.
func (p *plan) collectError(v fanout.View, id cache.ID, brought bool) bool {
	if p.mute {
		return false
	}
	a := v.Answer(id)
	if a.Error != nil {
		p.fail(v.Name(id), a.Error)
		return true
	}
	if named, _ := v.Unavailable(); named != nil && waits(v, id, brought) {
		p.unavailable = append(p.unavailable, resourceErr{v.Name(id), named})
	}
	return false
}

// waits reports whether the client waits for what a name leads to. A client does not wait for
// what is refused or in doubt.
func waits(v fanout.View, id cache.ID, brought bool) bool {
	return v.Answer(id).State == cache.Unknown && v.Resolution(id, brought).Awaited()
}

// starving returns why something that the client waits for cannot be had just now, or nil
// (ERR-7). claims reports whether the client came with a copy of a name, or may have.
func starving(v fanout.View, claims func(name string) bool) *statuspb.Status {
	named, wildcard := v.Unavailable()
	if subscribed, _ := v.Wildcard(); wildcard != nil && subscribed && !whole(v) {
		return wildcard
	}
	if named != nil {
		for _, id := range v.Names() {
			if waits(v, id, claims(v.Name(id))) {
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
	noGlob   = &statuspb.Status{Code: 12, Message: "xds-relay: xdstp globs are not served yet; subscribe by resource name"}
)

// unique keeps the first resource of each name.
func unique(resources []*cache.Resource) []*cache.Resource { return besides(nil, resources) }

// besides returns the resources that bear no name of the listed ones, and each name once.
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

// nameSet is a set of names.
type nameSet map[string]struct{}

func namesOf(lists ...[]*cache.Resource) nameSet {
	all := slices.Concat(lists...)
	names := make(nameSet, len(all)) // there may be very many, and this is done under a lock
	for _, r := range all {
		names.add(r.Name)
	}
	return names
}

// add adds a name, and reports whether the set had it before.
func (s nameSet) add(name string) (again bool) {
	_, again = s[name]
	s[name] = struct{}{}
	return again
}

func (s nameSet) has(name string) bool {
	_, has := s[name]
	return has
}
