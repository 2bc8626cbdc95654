package session

import (
	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Bodies that are not kept (VALID-5): the Hub hands them to the client's Subscription when they
// come, and asks upstream again when one is needed later.

// bodies replaces husks by their bodies. A body that is not here is asked for and left out; the
// client is marked when it comes (VALID-5).
func bodies(v fanout.View, resources []*cache.Resource) (whole []*cache.Resource, complete bool) {
	if !v.Bodies().Husks() {
		return resources, true
	}
	whole = make([]*cache.Resource, 0, len(resources))
	for _, r := range resources {
		if body := v.Bodies().Body(r); body != nil {
			whole = append(whole, body)
		} else {
			v.Bodies().Ask(r)
		}
	}
	return whole, len(whole) == len(resources)
}

// lacksBodies reports whether the wildcard's set, which is asked for, has bodies that are not here and
// that the client did not bring. They are asked for, and the set waits for them (VALID-5).
func (x *exchange) lacksBodies(v fanout.View) (lacking bool) {
	if subscribed, synced := v.Wildcard(); !x.wildcardAsked || !subscribed || !synced || !v.Bodies().Husks() {
		return false
	}
	for c := range v.Set().Since(0) {
		if c.Resource != nil && !(x.brings(c.Name) && x.holds(v, c.Resource)) && v.Bodies().Body(c.Resource) == nil {
			v.Bodies().Ask(c.Resource)
			lacking = true
		}
	}
	return lacking
}

// collectHanded lists bodies that were asked for and have come (VALID-5).
func (x *exchange) collectHanded(v fanout.View, p *part) {
	handed := x.fitting(v, v.Bodies().Handed(!x.postponed), p)
	for _, r := range handed {
		for name := range r.Names() {
			if id, ok := v.Lookup(name); ok {
				v.Tell(id, fanout.ToldCopy(p.position))
			}
		}
		x.sentBy(v, r)
	}
	p.resources = append(p.resources, handed...)
	p.mixed = p.mixed || len(handed) > 0
	x.handed = false
}
