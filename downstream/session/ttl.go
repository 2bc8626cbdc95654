package session

import (
	"slices"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// takesTTL reports whether a client's node says that it knows TTLs. On SotW it must
// also be able to take a resource out of the wrapper that holds one. Sources
// disagree on how that is spelled (TTL-6).
func takesTTL(node *core.Node, delta bool) bool {
	lists := func(features ...string) bool {
		return slices.ContainsFunc(features, func(f string) bool {
			return slices.Contains(node.GetClientFeatures(), "xds.config."+f) || slices.Contains(node.GetClientFeatures(), "envoy.config."+f)
		})
	}
	return lists("supports-resource-ttl") && (delta || lists("resource-in-sotw", "supports-resource-in-sotw"))
}

// renewals are the resources whose TTL upstream has renewed since the client was
// last told (TTL-3). Most go without their bodies. Some go whole: those that got or
// lost their TTL (TTL-12), and virtual hosts, of which a client takes one without a
// body for a denial (TTL-9). to is how far it was told of the wildcard's set.
func (x *exchange) renewals(v fanout.View, to cache.Seq) (whole, beats []*cache.Resource) {
	x.renewable(v, to, func(r *cache.Resource, changed, told cache.Seq) {
		_, some := x.of(v, r.Name)
		told = max(told, x.renewedOf[r.Name])
		switch ends, turned, renewed := v.TTLs().Ends(r); {
		case x.hasRejected(changed) || !some || renewed <= told || x.lacksNewest(v, r):
		case turned > told:
			whole = append(whole, r)
		case ends.IsZero(): // another resource of the name has been renewed, or this one has changed
		case x.url != cache.VirtualHost:
			beats = append(beats, r)
		case v.Bodies().Body(r) != nil:
			whole = append(whole, v.Bodies().Body(r))
		}
	})
	x.renews(v.Position())
	return whole, beats
}

// renews notes that all TTLs are told up to a position.
func (x *exchange) renews(to cache.Seq) { x.renewedTo, x.renewedOf = to, nil }

// renewable yields what a renewal was marked for, each with the position at which it changed
// and the one up to which the client was told of such. to is how far it was told of the
// wildcard's set.
func (x *exchange) renewable(v fanout.View, to cache.Seq, yield func(r *cache.Resource, changed, told cache.Seq)) {
	for _, id := range x.renewed.take() {
		if _, waits := slices.BinarySearch(x.changed.items, id); waits || !v.Has(id) { // in order, from postpone
			continue // what is new goes with its TTL
		}
		a := v.Answer(id)
		if a.State != cache.Present {
			continue
		}
		yield(a.Resource, a.Seq, x.renewedTo)
		for i, r := range a.More {
			yield(r, a.MoreSeqs[i], x.renewedTo)
		}
	}
	subscribed, synced := v.Wildcard()
	members := x.membersRenewed && subscribed && synced
	x.membersRenewed = false
	if !members {
		return
	}
	for c := range v.Set().Renewed(x.renewedTo) {
		if x.holds(v, c.Resource) {
			yield(c.Resource, c.Seq, max(x.renewedTo, to))
		}
	}
}

// lostTTL reports whether a client that came with a resource is sent it, since it has no TTL any more.
func (d *deltaState) lostTTL(v fanout.View, r *cache.Resource) bool {
	ends, turned, _ := v.TTLs().Ends(r)
	return d.ttl && ends.IsZero() && turned > 0
}

// collectRenewals: what upstream has renewed (TTL-4, TTL-12), and what the client
// came with: it may have been renewed, or have lost its TTL, while the client was away.
func (d *deltaState) collectRenewals(v fanout.View, push bool, p *part) {
	var lost, beats []*cache.Resource
	if len(p.spared) > 0 {
		d.exact.unspare()
	}
	for _, r := range p.spared {
		switch ends, _, _ := v.TTLs().Ends(r); {
		case d.lostTTL(v, r):
			lost = append(lost, r)
		case d.ttl && !ends.IsZero() && d.url != cache.VirtualHost:
			beats = append(beats, r)
		}
	}
	d.renewWhole(v, lost, p)
	d.renewsAhead(v, p, beats)
	if push {
		whole, renewed := d.renewals(v, p.from)
		d.renewWhole(v, besides(beats, whole), p)
		beats = append(beats, renewed...)
	}
	p.beats = besides(p.resources, beats)
}

// renewWhole has the client told of TTLs with the bodies of their resources.
func (d *deltaState) renewWhole(v fanout.View, whole []*cache.Resource, p *part) {
	whole, _ = bodies(v, besides(p.resources, whole))
	whole = d.fitting(v, whole, p)
	p.resources = append(p.resources, whole...)
	if d.url == cache.Cluster {
		p.changed = append(slices.Clip(p.changed), whole...) // it may have expired where it was
	}
}

// renewsAhead notes that the client is told of TTLs with what it is told, and not to be told
// again with the changes that it may have to wait for. News are members, and told as such.
func (x *exchange) renewsAhead(v fanout.View, p *part, beats []*cache.Resource) {
	if !x.ttl || !v.TTLs().Any() {
		return
	}
	told := beats
	if p.news == nil {
		told = slices.Concat(p.resources, beats)
	}
	for _, r := range told {
		if _, _, renewed := v.TTLs().Ends(r); renewed > 0 {
			put(&x.renewedOf, r.Name, p.position)
		}
	}
}

// expiring notes when what is told expires, for a client that knows TTLs.
func (x *exchange) expiring(v fanout.View, p *part) {
	if !x.ttl {
		return // TTL-7
	}
	for _, list := range [][]*cache.Resource{p.resources, p.beats} {
		for _, r := range list {
			if ends, _, _ := v.TTLs().Ends(r); !ends.IsZero() {
				put(&p.ends, r, ends)
			}
		}
	}
}
