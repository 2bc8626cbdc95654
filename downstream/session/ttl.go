package session

import (
	"slices"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// takesTTL reports whether a client's node says that it knows TTLs. A SotW client must also be
// able to take a resource out of the wrapper that holds one. Sources disagree on the spelling
// (TTL-6).
func takesTTL(node *core.Node, delta bool) bool {
	return lists(node, "supports-resource-ttl") && (delta || unwraps(node))
}

// unwraps reports whether a client's node says that it takes a resource out of a wrapper on SotW.
func unwraps(node *core.Node) bool {
	return lists(node, "resource-in-sotw", "supports-resource-in-sotw")
}

// lists reports whether a client's node lists a client feature, in one of several spellings.
func lists(node *core.Node, spellings ...string) bool {
	return slices.ContainsFunc(spellings, func(f string) bool {
		return slices.Contains(node.GetClientFeatures(), "xds.config."+f) || slices.Contains(node.GetClientFeatures(), "envoy.config."+f)
	})
}

// renewing is what upstream has renewed, and what of it the client was sent (TTL-3).
type renewing struct {
	renewed        pile[cache.ID]       // names that were renewed (TTL-4, TTL-12, TTL-13)
	membersRenewed bool                 // a member of the wildcard's set was renewed
	renewedTo      cache.Seq            // the position up to which renewals were sent
	renewedOf      map[string]cache.Seq // the same of some resources, further on
}

func (r *renewing) due() bool { return r.membersRenewed || r.renewed.len() > 0 }

// renewals returns the resources that upstream has renewed since the client was last sent renewals
// (TTL-3). Most go without their bodies (heartbeats). Those that got or lost their TTL (TTL-12)
// go whole, and so do virtual hosts, since a client takes one without a body for a denial
// (TTL-9), and what a client drops unless it is sent it again (TTL-13). to is the position up to
// which the client was sent the wildcard's set.
func (x *exchange) renewals(v fanout.View, to cache.Seq) (whole, heartbeats []*cache.Resource) {
	x.renewable(v, to, func(r *cache.Resource, told cache.Seq) {
		told = max(told, x.renewedOf[r.Name])
		switch ends, turned, renewed := v.Ends(r); {
		case x.hasRejected(v.Changed(r)) && !x.came.has(r.Name) || renewed <= told:
		case !x.holds(v, r): // it is sent with its TTL, if at all: it may be too large, or from disk (RECON-19)
		case x.ttl && turned > told, v.Repeated(r) > told:
			whole = append(whole, r)
		case !x.ttl, ends.IsZero(): // another resource of the name was renewed, or this one has changed
		case x.api != cache.VirtualHost:
			heartbeats = append(heartbeats, r)
		default:
			whole = append(whole, r)
		}
	})
	x.renewedTo, x.renewedOf = v.Position(), nil // all renewals are sent
	return whole, heartbeats
}

// keeps reports whether the client holds a resource as it is. What is recorded by name is compared by
// its version: if it went and came again since it was sent, or looked at, at a position, the client
// may have dropped it.
func (x *exchange) keeps(v fanout.View, r *cache.Resource, at cache.Seq) bool {
	if holds := x.holds(v, r); !holds || !x.mayDrop(v, r) {
		return holds
	}
	if e := x.exact.find(r.Name); e != nil {
		at = max(at, e.at)
	}
	return v.Changed(r) <= at
}

// mayDrop reports whether the client may drop a resource by itself when a time is over: that of a TTL, or
// one that the resource sets.
func (x *exchange) mayDrop(v fanout.View, r *cache.Resource) bool {
	return r.GoesStale || x.ttl && v.AnyTTL()
}

// renewable yields the resources that may have been renewed, each with the position up to which the
// client was sent renewals. to is the position up to which it was sent the wildcard's set.
func (x *exchange) renewable(v fanout.View, to cache.Seq, yield func(r *cache.Resource, told cache.Seq)) {
	for _, id := range x.renewed.take() {
		if !v.Has(id) {
			continue
		}
		_, waits := slices.BinarySearch(x.changed.items, id) // holdForCDS leaves the items sorted
		// In a list: a loop over the iterator has the caller's function allocated, for each response of each client.
		for _, r := range slices.Collect(v.Leading(id)) {
			if !waits || x.keeps(v, r, v.Told(id).At()) { // a change is sent with its TTL
				yield(r, x.renewedTo)
			}
		}
	}
	members := x.membersRenewed && whole(v)
	x.membersRenewed = false
	if !members {
		return
	}
	for c := range v.Set().Renewed(x.renewedTo) {
		if x.holds(v, c.Resource) {
			yield(c.Resource, max(x.renewedTo, to))
		}
	}
}

// lostTTL reports whether a client that came with a resource is sent it because it has no TTL any
// more.
func (d *deltaState) lostTTL(v fanout.View, r *cache.Resource) bool {
	ends, turned, _ := v.Ends(r)
	return d.ttl && ends.IsZero() && turned > 0
}

// collectRenewals lists what upstream has renewed (TTL-4, TTL-12), and what the client came with:
// the TTL may have been renewed or lost while the client was away.
func (d *deltaState) collectRenewals(v fanout.View, push bool, p *plan) {
	var whole, heartbeats []*cache.Resource
	for _, r := range p.spared {
		ends, _, _ := v.Ends(r)
		switch limited := d.ttl && !ends.IsZero(); {
		case d.lostTTL(v, r), limited && d.api == cache.VirtualHost: // TTL-9
			whole = append(whole, r)
		case limited:
			heartbeats = append(heartbeats, r)
			put(&d.came, r.Name, struct{}{})
		}
	}
	d.renewWhole(v, whole, p)
	d.renewsAhead(v, p, heartbeats)
	if push {
		whole, renewed := d.renewals(v, p.from)
		d.renewWhole(v, besides(heartbeats, whole), p)
		heartbeats = append(heartbeats, renewed...)
	}
	p.heartbeats = besides(p.resources, heartbeats)
}

// renewWhole lists resources with their bodies to renew their TTLs.
func (d *deltaState) renewWhole(v fanout.View, whole []*cache.Resource, p *plan) {
	whole = d.fitting(v, besides(p.resources, whole), p)
	p.resources = append(p.resources, whole...)
	for _, r := range whole {
		d.sent(r, p.position)
	}
	if d.api == cache.Cluster {
		p.changed = append(slices.Clip(p.changed), whole...) // the client's copy may have expired
	}
}

// renewsAhead notes the renewals that go with resources and heartbeats, so that they are not sent
// again with changes that may have to wait. News have members only, whose position says the same.
func (x *exchange) renewsAhead(v fanout.View, p *plan, heartbeats []*cache.Resource) {
	if !v.AnyTTL() {
		return
	}
	told := heartbeats
	if p.news == nil {
		told = slices.Concat(p.resources, heartbeats)
	}
	for _, r := range told {
		if _, _, renewed := v.Ends(r); renewed > 0 && x.mayDrop(v, r) {
			put(&x.renewedOf, r.Name, p.position)
		}
	}
}

// expiring notes when the resources of a part expire, for a client that knows TTLs.
func (x *exchange) expiring(v fanout.View, p *plan) {
	if !x.ttl || !v.AnyTTL() {
		return // TTL-7
	}
	for _, r := range slices.Concat(p.resources, p.heartbeats) {
		if ends, _, _ := v.Ends(r); !ends.IsZero() {
			put(&p.ends, r, ends)
		}
	}
}
