package session

import (
	"math"
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// deltaState is the incremental variant for one type on one stream. What a client
// has is not remembered by name: a change is marked once, and a wildcard client is
// two positions in the order of changes.
type deltaState struct {
	exchange
	requested   bool
	reconnected bool                // the first request brought versions
	aliased     bool                // names, or what it came with, have led it to resources with aliases
	sent        map[string]struct{} // Cluster: endpoint names sent before endpoints were asked for
	// opening: the type's first request made it a wildcard, and nothing precedes
	// that answer (DOWN-DELTA-13).
	opening bool
	// untold: removals from the wildcard after this position (ORDER-2); unseen: none,
	// since the client has nothing of it.
	untold cache.Seq
	// left are names given up under the wildcard, to be told once more (WILD-8).
	left pile[string]
	// held are the versions the client came with that are not judged yet, kept
	// only until everything it asked for is resolved (DOWN-DELTA-10, -11).
	held *brought
	// doubting: all that is left of them is in doubt.
	doubting bool
	// uncovered are those of them that nothing covers, until it is told.
	uncovered pile[string]
	// kept are those of them that a resource loaded from disk would have replaced.
	kept map[string]struct{}
	// anew are names asked for since: what the client came with spares them nothing
	// (DOWN-DELTA-7).
	anew map[cache.ID]bool
	// resend: held versions do not spare the client anything (WILD-5, and
	// resend_on_reconnect_types).
	resend bool
	// warming are endpoint names whose cluster was sent on this stream, so that
	// held versions do not spare them (ORDER-4).
	warming map[string]struct{}
	// copies are the names of which the client has one, sent or brought, and has not
	// asked again since: only of these it is told that they are gone (MISS-9). nil: of all.
	copies map[string]struct{}
	// spared are those of the held versions for whose sake resources are not sent in the
	// response that is being made: the client may have missed renewals (TTL-5).
	spared []*version
}

// unseen is a position after all others.
const unseen cache.Seq = math.MaxUint64

// request takes in one request of the type.
func (d *deltaState) request(req *discovery.DeltaDiscoveryRequest, now time.Time) (v verdict) {
	first := !d.requested
	d.requested, d.doubting = true, false
	if nonce := req.GetResponseNonce(); nonce != "" && !first {
		v = d.verdict(nonce, req.GetErrorDetail(), now)
	}
	if first && len(req.GetInitialResourceVersions()) > 0 {
		d.held = bring(req.GetInitialResourceVersions())
		d.reconnected, d.returning = true, d.url == cache.Cluster
	}
	d.missed(req.GetResourceNamesSubscribe(), req.GetResourceNamesUnsubscribe())
	d.anewWithout(req, first)
	// The lists count whatever the nonce is worth (DOWN-DELTA-4).
	asked := d.sub.Delta(req.GetResourceNamesSubscribe(), req.GetResourceNamesUnsubscribe(), now)
	d.asked.add(asked.Names...)
	for _, name := range asked.New {
		if !first || !d.brought(name) {
			d.await(name)
		}
	}
	left := distinct(asked.Left)
	for _, name := range req.GetResourceNamesUnsubscribe() {
		d.answered(name)
		led := d.ties.drop(name)
		if _, told := slices.BinarySearch(left, name); told {
			d.left.add(led...)
		}
	}
	d.left.add(left...)
	if slices.Contains(req.GetResourceNamesUnsubscribe(), fanout.Wildcard) {
		d.untold = unseen // what it had of the wildcard it has dropped
		d.wildcardAsked, d.opening = false, false
	}
	if asked.Wildcard {
		d.wildcardAsked = true
		d.opening = d.opening || first
		d.resend = d.resend || !first
	}
	if !first && d.held != nil {
		if d.anew == nil {
			d.anew = make(map[cache.ID]bool)
		}
		for _, id := range asked.Names {
			d.anew[id] = true
		}
		for _, name := range req.GetResourceNamesSubscribe() {
			d.held.judge(name) // it is to be answered now
		}
		wildcard := false
		d.sub.Read(func(v fanout.View) { wildcard, _ = v.Wildcard() })
		for _, name := range req.GetResourceNamesUnsubscribe() {
			if !wildcard { // else it may be a member that was never named (row m)
				d.held.judge(name) // the client has dropped it (DOWN-DELTA-16)
			}
		}
	}
	return v
}

// missed keeps in mind the names with an untold change that the client gives up: an
// alias that it asks for may cover what it has of them, and not what there is (NAME-5).
func (d *deltaState) missed(subscribe, unsubscribe []string) {
	if len(unsubscribe) == 0 || !d.aliased {
		return
	}
	d.sub.Read(func(v fanout.View) {
		if subscribed, _ := v.Wildcard(); subscribed || len(v.Names())+len(subscribe) <= len(unsubscribe) {
			return // it is told as what it is to the wildcard (WILD-8), or drops all it has
		}
		d.take(v.Marks())
		untold := d.changed.take()
		d.changed.add(untold...)
		asked := d.asked.take()
		d.asked.add(asked...)
		pending, coming := distinct(slices.Concat(untold, asked)), distinct(slices.Clone(subscribe))
		for _, name := range unsubscribe {
			id, ok := v.Lookup(name)
			if !ok {
				continue
			}
			_, waits := slices.BinarySearch(untold, id)
			if waits {
				d.ties.loosenAll(name) // it may list an alias no more that the client asks for
			}
			version, a := "", v.Answer(id)
			own := a.Resource != nil && a.Resource.Name == name
			if own {
				version = a.Resource.Version
			}
			if waits && (own || a.State == cache.Absent || a.Vanished > 0) && !d.toldAhead(name, version, a.Seq) {
				d.ties.loosen(name, "")
			} else if own && slices.ContainsFunc(a.Resource.Aliases, func(alias string) bool {
				id, subscribed := v.Lookup(alias)
				_, waits := slices.BinarySearch(pending, id)
				_, comes := slices.BinarySearch(coming, alias)
				return subscribed && waits || comes
			}) {
				d.ties.loosen(name, version) // it has it, and is not told yet that the alias leads there
			}
		}
	})
}

// due: there may be something to send.
func (d *deltaState) due() bool {
	return d.exchange.due() || d.left.len() > 0 || d.held != nil || d.uncovered.len() > 0
}

// collect is what there is to tell. push: changes too, not only answers.
func (d *deltaState) collect(v fanout.View, push bool) (p part) {
	p.position, p.pushed = v.Position(), push && !d.postpones
	p.version = v.SystemVersion()
	d.returns(v, d.brought)
	subscribed, synced := v.Wildcard()
	lacking := d.lacks(v)
	if d.opening && subscribed && (!synced || lacking) {
		p.starving, p.undecided = starving(v, d.brought), d.refers && d.held != nil
		return p
	}
	if d.opening && subscribed && d.postpones && d.reconnected {
		d.postponed = true
		return p
	}
	if !lacking {
		d.collectWildcard(v, push, &p)
	}
	d.collectLeft(v, &p)
	d.collectNames(v, push, &p)
	d.collectHeld(v, push, &p)
	d.collectUncovered(v, push, &p)
	p.undecided = d.refers && d.held != nil
	p.resources, _ = bodies(v, p.resources)
	if push && !lacking {
		handed := v.Handed(!d.postponed)
		p.resources = append(p.resources, handed...)
		p.mixed = p.mixed || len(handed) > 0
		d.handed = false
	}
	d.judged(&p)
	if p.mixed || subscribed && len(v.Names()) > 0 || hasAliases(p.resources) {
		p.resources = unique(p.resources) // DOWN-DELTA-12
	}
	d.ties.gone(p.gone)
	d.ties.told(p.resources...)
	d.copied(v, &p)
	p.changed = p.resources
	d.collectRenewals(v, push, &p)
	d.collectErrors(v, &p)
	d.expiring(v, &p)
	p.starving = starving(v, d.brought)
	if len(p.removed)+len(p.gone) > 0 {
		p.withoutContradiction()
	}
	if p.removedMembers && len(p.removed) == 0 {
		p.removedMembers, d.untold = false, p.position // all of them are told as something else
	}
	if d.untold != unseen {
		v.Passed(d.untold)
	}
	return p
}

// collectWildcard: the whole set once it is complete (DOWN-DELTA-13, row j), then
// its changes.
func (d *deltaState) collectWildcard(v fanout.View, push bool, p *part) {
	subscribed, synced := v.Wildcard()
	switch {
	case !subscribed:
		d.wildcardAsked, d.opening, d.members = false, false, false
		return
	case !synced:
		d.members = false // it is marked again when it is
		return
	case d.wildcardAsked:
		d.collectMembers(v, p)
		d.wildcardAsked, d.opening = false, false
		p.must, p.answer = true, true
	case push && d.members:
		d.postponed = d.postpones && gainsMembers(d, v)
		if d.collectChanges(v, p); d.postponed {
			p.removedMembers = len(p.removed) > 0
			return
		}
	default:
		return
	}
	p.removedMembers = len(p.removed) > 0
	d.members = false
	d.told = p.position
	if !p.removedMembers {
		d.untold = p.position
	}
}

// collectMembers: the whole set, and removals of what was told before.
func (d *deltaState) collectMembers(v fanout.View, p *part) {
	if d.held == nil && d.untold == unseen && d.share(v, 0, p) {
		return
	}
	for c := range v.Members(0) {
		switch {
		case c.Resource == nil && c.Seq > d.untold:
			p.removed = append(p.removed, c.Name)
		case c.Resource != nil && !(v.WarmSet() && d.keeps(c.Name)) && !d.has(c.Resource):
			p.resources = append(p.resources, c.Resource)
		}
	}
	slices.Reverse(p.resources) // in the order in which they changed
}

// collectChanges: what has changed in the set, unless that has to wait (ORDER-3), and
// removals, also those that had to.
func (d *deltaState) collectChanges(v fanout.View, p *part) {
	if !d.postponed && d.held == nil && d.ahead == nil && d.told == d.untold && d.share(v, d.told, p) {
		p.removed = p.news.Removed
		return
	}
	for c := range v.Members(min(d.told, d.untold)) {
		switch {
		case c.Resource == nil && d.toldAhead(c.Name, "", c.Seq):
		case c.Resource != nil && (d.postponed || d.toldAhead(c.Name, c.Resource.Version, c.Seq)):
		case c.Resource != nil && c.Seq > d.told && !d.has(c.Resource):
			p.resources = append(p.resources, c.Resource)
		case c.Resource == nil && c.Seq > d.untold:
			p.removed = append(p.removed, c.Name)
		}
	}
	slices.Reverse(p.resources)
	slices.Reverse(p.removed)
}

// share lists what every client without names, versions or peculiarities of its own is
// told after a position. false: this one is not like that.
func (d *deltaState) share(v fanout.View, after cache.Seq, p *part) (ok bool) {
	if p.news, ok = v.News(after); ok {
		p.resources = p.news.Resources
	}
	return ok
}

// collectLeft: a name given up under the wildcard is told as what it is to the
// wildcard, once that is certain (WILD-8, row l).
func (d *deltaState) collectLeft(v fanout.View, p *part) {
	subscribed, synced := v.Wildcard()
	if !subscribed {
		d.left.take()
	}
	if d.left.len() == 0 || !synced {
		return
	}
	var removed []string
	if v.WarmSet() {
		removed = distinct(slices.Clone(p.removed))
	}
	for _, name := range d.left.take() {
		if _, again := v.Lookup(name); again {
			continue
		}
		if v.Leads(name) {
			continue // it is told for an alias of it
		}
		r := v.Member(name)
		if r == nil && (v.WarmSet() || v.Doubted(name)) {
			if _, said := slices.BinarySearch(removed, name); !said { // by upstream
				d.left.add(name) // what was loaded from disk may lack it (RECON-19), as may a set with a fault (ERR-10)
			}
			continue
		}
		if r != nil && d.postpones && !p.must {
			d.left.add(name) // it may be a change
			d.postponed = true
			continue
		}
		p.answer, p.mixed = true, true
		if r != nil {
			p.resources = append(p.resources, r)
			d.tellAhead(name, r.Version, p)
		} else {
			p.gone = append(p.gone, name)
			d.tellAhead(name, "", p)
		}
	}
}

// collectNames: every name asked for is answered (DOWN-DELTA-7), and every change
// of a subscribed one is told. A name not resolved yet is silent, and marked again
// when it is (MISS-7).
func (d *deltaState) collectNames(v fanout.View, push bool, p *part) {
	asked := d.asked.take()
	if d.postpones {
		asked = postponeAsked(d, v, asked)
	}
	for _, id := range asked {
		if v.Has(id) {
			d.collectName(v, id, true, p)
		}
	}
	if !push {
		return
	}
	changed := d.changed.take()
	if d.postpones {
		changed = postpone(d, v, changed)
	}
	for _, id := range changed {
		if !v.Has(id) {
			continue
		}
		if _, told := slices.BinarySearch(asked, id); !told {
			d.collectName(v, id, false, p)
		}
		if v.Answer(id).Vanished > d.namesTo {
			d.ties.loosen(v.Name(id), "") // others answer to the name now
		}
	}
	if d.postponed {
		return // what waits may lead to what is loose
	}
	members, gone := d.ties.collectLoose(v)
	p.resources, p.mixed = append(p.resources, members...), p.mixed || len(members) > 0
	p.removed, p.removedLoose = append(p.removed, gone...), gone
	d.namesTo = p.position
	if !p.late() { // what is held back is collected again
		d.ahead, d.warmed = nil, nil
	}
}

func (d *deltaState) collectName(v fanout.View, id cache.ID, asked bool, p *part) {
	a := v.Answer(id)
	if a.State == cache.Absent && d.brought(v.Name(id)) && v.Verdict(id, true) == fanout.Doubt {
		return // it is marked again when it is not
	}
	if asked && a.State != cache.Unknown {
		p.answer = true
		delete(d.warmed, id)
	}
	if a.State != cache.Unknown {
		d.answered(v.Name(id))
		d.ties.lead(v.Name(id), &a)
	}
	switch {
	case a.State == cache.Present:
		for r := range d.leadsTo(v.Name(id), &a, asked || d.warmed[id], p) {
			kept := v.Warm(id) && d.keeps(r.Name)
			if !kept && !d.has(r) || d.anew[id] {
				p.resources = append(p.resources, r)
			}
			if !kept {
				d.ties.told(r)
			}
		}
		delete(d.warmed, id)
	case a.Negative != nil:
		p.resources = append(p.resources, a.Negative) // NAME-6
	case a.State == cache.Absent && !d.misses(v.Name(id)):
	case a.State == cache.Absent && asked:
		p.gone = append(p.gone, v.Name(id)) // MISS-2
		d.tellAhead(v.Name(id), "", p)
	case a.State == cache.Absent && (d.warmed[id] || !d.toldAhead(v.Name(id), "", a.Seq)):
		p.removed = append(p.removed, v.Name(id)) // MISS-10
		p.removedIDs = append(p.removedIDs, id)
	}
	if a.State == cache.Absent {
		d.held.judge(v.Name(id))
	}
	if asked && (a.Error != nil || a.State == cache.Unknown || a.Resource != nil && a.Resource.Husk()) {
		d.failed.add(id) // H-27
	}
}

// collectErrors: each error of a name once (ERR-9), in a response that does not
// list the name as a resource.
func (d *deltaState) collectErrors(v fanout.View, p *part) {
	p.refuse(&d.exchange)
	for _, id := range d.failed.take() {
		if !v.Has(id) {
			continue
		}
		name := v.Name(id)
		if named := func(r *cache.Resource) bool { return r.Name == name }; slices.ContainsFunc(p.resources, named) || slices.ContainsFunc(p.beats, named) {
			d.failed.add(id) // in the next one
			continue
		}
		p.collectError(v, id, d.brought(name))
	}
}

// later keeps the removals of a part for another flush.
func (d *deltaState) later(p *part) {
	d.members = d.members || p.removedMembers
	d.changed.add(p.removedIDs...)
	d.uncovered.add(p.removedUncovered...)
	for _, name := range p.removedLoose {
		d.ties.loosen(name, "")
	}
}

// removedNow notes that the removals of a part are told.
func (d *deltaState) removedNow(p *part) {
	if p.removedMembers {
		d.untold = p.position
		d.sub.Passed(d.untold)
	}
	d.ties.gone(p.removed)
	for _, name := range p.removed {
		delete(d.copies, name)
	}
	if p.pushed { // and with that all changes
		d.ahead, d.warmed = nil, nil
	}
}
