package session

import (
	"slices"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// What a returning Delta client came with, by version: what that spares it, and how it
// is judged (DOWN-DELTA-8, -10, -11, RECON-19).

// brought: the client came with a version of it that is not judged yet.
func (d *deltaState) brought(name string) bool { return d.held.has(name) }

// holds: the client came with exactly this.
func (d *deltaState) holds(r *cache.Resource) bool {
	v := d.held.find(r.Name)
	return v != nil && !v.judged && d.spares(v, r)
}

// spares: a version that the client came with spares it a resource.
func (d *deltaState) spares(v *version, r *cache.Resource) bool {
	_, warming := d.warming[r.Name]
	return v.version == r.Version && !d.resend && !warming
}

// has: the client holds it, or is about to: its version is judged.
func (d *deltaState) has(r *cache.Resource) bool {
	aliased := len(r.Aliases) > 0
	d.aliased = d.aliased || aliased
	v := d.held.find(r.Name)
	if v == nil || v.judged {
		return v != nil && v.spared == r // another of its names has led here already
	}
	d.held.judged(v)
	has := d.spares(v, r)
	if has && (d.ttl || aliased) {
		v.spared = r
		if d.spared == nil {
			d.spared = make([]*version, 0, 1+min(d.held.left, d.asked.len()))
		}
		d.spared = append(d.spared, v)
	}
	return has
}

// keeps: the client came with a version of its own, which a snapshot from disk does
// not replace. It is judged once upstream has spoken (collectHeld).
func (d *deltaState) keeps(name string) bool {
	if !d.held.has(name) {
		return false
	}
	if d.kept == nil {
		d.kept = make(map[string]struct{})
	}
	d.kept[name] = struct{}{}
	return true
}

// judged drops the held versions of what the client is told of now.
func (d *deltaState) judged(p *part) {
	if d.held == nil {
		return
	}
	for _, r := range p.resources {
		d.held.judge(r.Name)
	}
	for _, name := range p.gone {
		d.held.judge(name)
	}
	for _, name := range p.removed {
		d.held.judge(name)
	}
}

// spareNot makes a held version not count, because a cluster that needs this
// resource was sent on the stream (ORDER-4).
func (d *deltaState) spareNot(name string) {
	if d.warming == nil {
		d.warming = make(map[string]struct{})
	}
	d.warming[name] = struct{}{}
}

// remember keeps the endpoint names of clusters that were sent before the client
// asked for endpoints.
func (d *deltaState) remember(names []string) {
	if d.sent == nil {
		d.sent = make(map[string]struct{})
	}
	for _, name := range names {
		d.sent[name] = struct{}{}
	}
}

// collectHeld: once upstream has confirmed what was loaded from disk, what the client
// kept meanwhile is compared. That is no answer, and waits for an ACK as changes do.
// Once everything asked for is resolved, too, what the client came with and nothing
// covers is gone (DOWN-DELTA-11).
func (d *deltaState) collectHeld(v fanout.View, push bool, p *part) {
	if d.held == nil || len(d.kept) > 0 && !push {
		return
	}
	if subscribed, _ := v.Wildcard(); subscribed && (d.wildcardAsked || v.WarmSet()) {
		return
	}
	if v.Warms() && slices.ContainsFunc(v.Names(), v.Warm) {
		return
	}
	if d.postpones && d.keptChanged(v) {
		d.postponed = true
		return
	}
	d.judged(p)
	for name := range d.kept {
		switch r := v.Resource(name); {
		case !d.held.has(name) || r == nil:
		case d.has(r):
			d.ties.told(r)
		default:
			p.resources = append(p.resources, r)
		}
	}
	d.kept = nil
	if d.unresolved(v) {
		return
	}
	if d.doubting && !d.handed {
		return // nothing is known of these that was not when they were looked at last
	}
	doubt, waits := false, false
	for name := range d.held.names() {
		id, subscribed := v.Lookup(name)
		gone := subscribed && v.Answer(id).State == cache.Absent
		switch {
		case v.Doubted(name):
			doubt = true
			continue
		case gone && !push:
			waits = true
			continue
		case gone && d.misses(name): // it was in doubt
			p.removed, p.removedIDs = append(p.removed, name), append(p.removedIDs, id)
		case !subscribed:
			d.uncovered.add(name)
		}
		d.held.judge(name)
	}
	d.doubting = doubt && !waits
	if v.Withhold(doubt); doubt || waits {
		return
	}
	if !d.postponed { // else what waits is compared with them
		d.held, d.warming, d.anew = nil, nil, nil
	}
}

// collectUncovered: what the client came with and nothing covers is taken from it, after
// what may refer to it now (ORDER-2). A client that has just come back may not have asked
// yet for what refers to Clusters: those go when it has acknowledged the new ones.
func (d *deltaState) collectUncovered(v fanout.View, push bool, p *part) {
	if d.uncovered.len() == 0 || !d.resolved(v) || d.url == cache.Cluster && (len(p.resources) > 0 || !push && d.unjudged()) {
		return
	}
	for _, name := range d.uncovered.take() {
		if !v.Covers(name) {
			p.removedUncovered = append(p.removedUncovered, name)
		}
	}
	slices.Sort(p.removedUncovered)
	p.removed = slices.Concat(p.removed, p.removedUncovered)
}

// resolved: upstream has spoken of all that the client asks for.
func (d *deltaState) resolved(v fanout.View) bool {
	if subscribed, synced := v.Wildcard(); subscribed && (!synced || v.WarmSet()) {
		return false
	}
	return !slices.ContainsFunc(v.Names(), func(id cache.ID) bool { return v.Warm(id) || d.waitsFor(v, id) })
}

// waitsFor: a name has no answer, and is not in doubt.
func (d *deltaState) waitsFor(v fanout.View, id cache.ID) bool {
	return v.Unanswered(id) && v.Verdict(id, d.brought(v.Name(id))) == fanout.Unknown
}

// unresolved: some name has no answer. Mostly it is the same one as when it was last asked.
func (d *deltaState) unresolved(v fanout.View) bool {
	if v.Has(d.unanswered) && d.waitsFor(v, d.unanswered) {
		return true
	}
	i := slices.IndexFunc(v.Names(), func(id cache.ID) bool { return d.waitsFor(v, id) })
	if i >= 0 {
		d.unanswered = v.Names()[i]
	}
	return i >= 0
}

// keptChanged: what the client kept meanwhile is not what there is.
func (d *deltaState) keptChanged(v fanout.View) bool {
	for name := range d.kept {
		if r := v.Resource(name); r != nil && d.brought(name) && !d.holds(r) {
			return true
		}
	}
	return false
}

// anewWithout takes in which names a client asks for that it has no copy of, as far as
// the relay knows, or no use for the one it has.
func (d *deltaState) anewWithout(req *discovery.DeltaDiscoveryRequest, first bool) {
	if d.copies == nil {
		return
	}
	for _, name := range req.GetResourceNamesSubscribe() {
		delete(d.copies, name)
		if first && d.brought(name) {
			d.copies[name] = struct{}{}
		}
	}
	for _, name := range req.GetResourceNamesUnsubscribe() {
		delete(d.copies, name)
	}
}

// copied notes what the client is sent, for whichever of its names, and what is taken
// from it.
func (d *deltaState) copied(v fanout.View, p *part) {
	if d.copies == nil {
		return
	}
	for _, name := range p.gone {
		delete(d.copies, name)
	}
	for _, r := range p.resources {
		d.copies[r.Name] = struct{}{}
		for _, alias := range r.Aliases {
			if _, asked := v.Lookup(alias); asked {
				d.copies[alias] = struct{}{}
			}
		}
	}
}

// misses: the client is to be told that a name is gone, or does not exist. One who
// waits for it would take that for an answer, and never be done (MISS-9).
func (d *deltaState) misses(name string) bool {
	_, has := d.copies[name]
	return d.copies == nil || has
}
