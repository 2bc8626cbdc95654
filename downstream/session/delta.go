package session

import (
	"maps"
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// deltaState is the state of one type on a Delta stream.
type deltaState struct {
	exchange
	reconnected bool // the first request brought versions
	// opening says that the type's first request asked for the wildcard, so that no response of
	// the type precedes its answer (DOWN-DELTA-13).
	opening bool
	// resend says that resources are sent whatever versions the client came with (resend_on_reconnect_types).
	resend bool
	// suppresses says that the client is sent the removal of a name only if it has a copy, sent or
	// brought, and has not asked again since. A client that waits for the name would take the
	// removal for an answer, and wait for ever (MISS-9).
	suppresses bool

	// needed has the endpoints whose cluster was sent before the client asked for endpoints. It is kept in the state of
	// Clusters until then, and in that of Endpoints until the first request (ORDER-4).
	needed nameSet
}

// request takes in one request of the type.
func (d *deltaState) request(req *discovery.DeltaDiscoveryRequest, now time.Time) Note {
	first, note := !d.requested, Note{Type: d.url, Kind: InitialRequest}
	d.requested = true
	if nonce := req.GetResponseNonce(); !first {
		note = d.takeAck(nonce, req.GetErrorDetail(), now)
	}
	subscribe, unsubscribe := req.GetResourceNamesSubscribe(), req.GetResourceNamesUnsubscribe()
	if first && len(req.GetInitialResourceVersions()) > 0 {
		d.comesBack(req.GetInitialResourceVersions())
	}
	given := d.leaves(subscribe, unsubscribe)
	// The lists take effect whatever the nonce is (DOWN-DELTA-4).
	asked := d.sub.Delta(subscribe, unsubscribe, now)
	note.Unasked = asked.Unasked
	d.left(given, &asked)
	d.asks(&asked, first)
	return note
}

// comesBack takes in the versions that the client came with.
func (d *deltaState) comesBack(versions map[string]string) {
	d.sub.Returns()
	d.exact = new(exact)
	d.exact.claim(versions)
	d.reconnected, d.touched.all, d.returning = true, true, d.api == cache.Cluster
	if d.resend {
		for name := range versions {
			d.exact.unknown(name)
		}
	}
	for name := range d.needed {
		d.exact.unknown(name)
	}
}

// givenUp is what a request gives up.
type givenUp struct {
	names nameSet // those that the client subscribed to, and what they lead to
	all   bool    // the wildcard, to which it subscribed
	// stays has what the client may still have because of another name: its copy lists that, as far as anybody knows.
	stays nameSet
}

func (g *givenUp) any() bool { return len(g.names) > 0 || g.all }

// leaves takes in that a request is about to take effect, and returns what it gives up. A client that will
// have names and the wildcard is exact from now on.
func (d *deltaState) leaves(subscribe, unsubscribe []string) (g givenUp) {
	if len(subscribe)+len(unsubscribe) == 0 {
		return g
	}
	d.sub.Read(func(v fanout.View) {
		all := wildcard(v) || slices.Contains(subscribe, fanout.Wildcard)
		isName := func(name string) bool { return name != fanout.Wildcard }
		if named := len(v.Names()) > 0 || slices.ContainsFunc(subscribe, isName); all && named {
			d.expand(v)
		}
		for _, name := range unsubscribe {
			g.all = g.all || name == fanout.Wildcard && all
			d.givesUp(v, name, &g)
		}
		if listsNames := d.aliased || d.reconciling(); g.any() && listsNames {
			d.mayStay(v, subscribe, &g)
		}
	})
	return g
}

// givesUp takes in that one name is about to be given up. One that the client does not subscribe to drops nothing
// (DOWN-DELTA-17), unless the client came with what bears it.
func (d *deltaState) givesUp(v fanout.View, name string, g *givenUp) {
	id, subscribed := v.Lookup(name)
	if !subscribed {
		if e := d.exact.find(name); e != nil && e.brought && !v.Leads(name) {
			put(&g.names, name, struct{}{})
		}
		return
	}
	drop(&d.erred, id) // IDs may be reused soon
	put(&g.names, name, struct{}{})
	for r := range v.Leading(id) {
		if !subscribes(v, r.Name) {
			put(&g.names, r.Name, struct{}{})
		}
	}
}

// mayStay notes what the client may still have because of names that it asks for.
func (d *deltaState) mayStay(v fanout.View, subscribe []string, g *givenUp) {
	asked := make(nameSet, len(subscribe))
	for _, name := range subscribe {
		asked.add(name)
	}
	for _, id := range v.Names() {
		asked.add(v.Name(id))
	}
	for name := range g.names {
		delete(asked, name)
	}
	if len(asked) == 0 {
		return
	}
	for e := range d.exact.all() {
		copied := v.Here(e.name, e.version)
		stays := d.aliased || !g.names.has(e.name) // nobody knows what it lists
		if copied != nil {
			stays = false
			for name := range copied.Names() {
				stays = stays || name != e.name && asked.has(name)
			}
		}
		if stays {
			put(&g.stays, e.name, struct{}{})
		}
	}
}

// left takes in what the client has given up. It drops that, unless another name or the wildcard covers it:
// under the wildcard it is sent the wildcard's state of each name, whatever it holds (WILD-8).
func (d *deltaState) left(g givenUp, asked *fanout.Asked) {
	if !g.any() {
		return
	}
	for name := range g.names {
		d.answered(name)
	}
	if g.all {
		d.sentTo, d.removedTo = 0, unseen
		d.touched.resend, d.touched.left = nil, pile[string]{}
		d.wildcardAsked, d.opening = false, false
	}
	d.sub.Read(func(v fanout.View) {
		left := g.withMembers(asked.Left)
		d.touched.left.add(left...)
		for _, name := range left {
			put(&d.touched.resend, name, struct{}{})
		}
		if wildcard(v) {
			d.touched.names.add(slices.Collect(maps.Keys(g.names))...)
			return
		}
		for name := range g.names { // another name may lead there that has not been answered
			d.tangled = d.tangled || v.Resource(name) != nil
		}
		d.forget(v, func(e *entry) bool {
			if g.stays.has(e.name) { // it may have dropped it
				d.exact.unknown(e.name)
				d.touched.names.add(e.name)
			}
			brought := e.brought && !g.all && !g.names.has(e.name)
			return brought || g.stays.has(e.name) || d.spares
		})
	})
}

// asks takes in what a request asks for.
func (d *deltaState) asks(asked *fanout.Asked, first bool) {
	d.asked.add(asked.Names...)
	for _, name := range asked.New {
		if !first || !d.claims(name) {
			d.await(name)
		}
	}
	if asked.Wildcard {
		d.wildcardAsked = true
		d.opening = d.opening || first
	}
	if asked.Wildcard && !first && d.reconciling() { // WILD-5
		d.sub.Read(func(v fanout.View) {
			for e := range d.exact.all() {
				if !subscribes(v, e.name) {
					d.exact.disclaim(e)
				}
			}
		})
	}
	if len(asked.Names) == 0 {
		return
	}
	if !first || d.suppresses || d.needed != nil {
		d.sub.Read(func(v fanout.View) { d.asksNames(v, asked.Names, first) })
		d.needed = nil
	}
}

// asksNames notes what else follows from asking for names, which are answered in any case.
func (d *deltaState) asksNames(v fanout.View, names []cache.ID, first bool) {
	for _, id := range names {
		if !v.Has(id) {
			continue // the same request gave it up
		}
		name := v.Name(id)
		if !first { // its answer is sent whatever the client came with (DOWN-DELTA-7)
			d.exact.disclaim(d.exact.find(name))
			drop(&d.touched.resend, name)
			for r := range v.Leading(id) {
				d.exact.disclaim(d.exact.find(r.Name))
			}
		}
		if d.suppresses && !first { // what it has had so far does not count (MISS-9)
			v.Tell(id, 0)
			d.removed(name)
		}
		if d.needed.has(name) || !first && v.Open(id) {
			v.SendAgain(id)
		}
	}
}

func (d *deltaState) due() bool {
	return d.exchange.due() || d.reconciling()
}

// collect lists what is to be sent.
func (d *deltaState) collect(v fanout.View, push bool, p *plan) {
	if d.allows(fanout.Wildcard) { // it depends on everything that the group has
		p.version = v.SystemVersion()
	}
	subscribed, synced := v.Wildcard()
	brought := d.reconnected && d.reconciling()
	switch {
	case d.waitsForCDS && brought && offers(d, v): // what was brought waits for Clusters (ORDER-13)
		d.heldForCDS, d.starving = true, nil
		d.changed.add(d.asked.items...) // they stay changes, whatever is asked for meanwhile
		return
	case d.opening && subscribed && !synced:
		d.exact.share()
		d.starving = starving(v, d.claims)
		return
	}
	d.surveys(v, push)
	d.dismisses(v, p)
	d.collectMembers(v, push, p)
	d.collectNames(v, push, p)
	d.reconcileTouched(v, push || p.must, p)
	if push {
		d.doubtOver = false
	}
	if d.exact != nil {
		p.resources = unique(p.resources) // DOWN-DELTA-12
	}
	p.changed = p.resources
	d.collectRenewals(v, push, p)
	d.saysTooLarge(v, p)
	d.collectErrors(v, p)
	d.expiring(v, p)
	d.starving = starving(v, d.claims)
	if len(p.removed)+len(p.gone) > 0 {
		d.touched.names.add(p.withoutContradiction()...)
	}
	d.removed(p.gone...)
	d.settles(v, p)
}

// settles notes how far the client is with the wildcard's set, except for removals that wait.
func (d *deltaState) settles(v fanout.View, p *plan) {
	v.Withhold(d.touched.withheld)
	if p.removedMembers && len(p.removed) == 0 {
		p.removedMembers, d.removedTo = false, p.position // another list of the part names each of them
	}
	if d.removedTo != unseen {
		v.Set().Passed(d.removedTo)
	}
	d.exact.share()
	if !d.pending() && !d.touched.open && len(p.removed) == 0 {
		d.compact(v)
	}
}

// collectNames lists the answer to every name that was asked for (DOWN-DELTA-7), and every change
// of a subscribed name. A name without an answer is marked again when it has one (MISS-7).
func (d *deltaState) collectNames(v fanout.View, push bool, p *plan) {
	asked := holdForCDS(d, v, d.asked.take(), true)
	var changed []cache.ID
	if push {
		changed = holdForCDS(d, v, d.changed.take(), false)
	}
	for _, id := range asked {
		if v.Has(id) {
			d.collectName(v, id, true, p)
		}
	}
	for _, id := range changed {
		if _, told := slices.BinarySearch(asked, id); !told && v.Has(id) {
			d.collectName(v, id, false, p)
		}
	}
}

func (d *deltaState) collectName(v fanout.View, id cache.ID, asked bool, p *plan) {
	if v.Glob(id) {
		d.collectGlob(v, id, asked, p)
		return
	}
	a, name := v.Answer(id), v.Name(id)
	if asked && (a.Error != nil || a.State == cache.Unknown) {
		d.failed.add(id) // H-27
	}
	d.follows(v, id, &a)
	forced := asked || d.mustResend(v, id, &a, func(r *cache.Resource) bool { return !d.holds(v, r) && !d.keepsClaim(v, id, r) })
	keeps := d.keepsDenied(v, &a, name)
	doubt := a.State != cache.Present && d.claims(name) && v.Resolution(id, true) == fanout.InDoubt
	if doubt || a.State == cache.Unknown {
		d.uncertain(v, id, &a, doubt)
		return // it is marked again when it has an answer, or the doubt is over
	}
	p.answer = p.answer || asked
	d.answered(name)
	switch {
	case a.State == cache.Present:
		d.collectCopies(v, id, &a, forced, p)
	case keeps:
		p.gone = append(p.gone, name)
		v.Tell(id, 0)
		d.changed.add(id) // one response does not name a resource twice, and the denial may bear the name
	case d.collectAbsence(v, id, &a, asked, forced, p):
		return // it waits, and is cleared when the removal is sent
	}
	d.clear(id, &a)
}

// uncertain takes in that a name has no answer, or one in doubt. If upstream refuses it, the client keeps what it came with.
func (d *deltaState) uncertain(v fanout.View, id cache.ID, a *cache.Answer, doubt bool) {
	e := d.exact.find(v.Name(id))
	switch {
	case !e.claims():
	case a.Error != nil && cache.Resolves(a.Error):
		d.exact.unclaim(e)
		v.Tell(id, fanout.Brought)
	default:
		d.touched.open, d.touched.withheld = true, d.touched.withheld || doubt
	}
}

// follows looks at where a name leads. The record of a client that an alias leads to a resource is exact. If
// the name may have led elsewhere before, everything that the client holds is looked at: it may have
// nothing else that leads there (NAME-5).
func (d *deltaState) follows(v fanout.View, id cache.ID, a *cache.Answer) {
	elsewhere := len(a.More) > 0 || a.Resource != nil && a.Resource.Name != v.Name(id)
	if elsewhere {
		d.expand(v)
		d.touched.names.add(v.Name(id)) // what bears the name is not wanted
	}
	d.aliased, d.tangled = d.aliased || elsewhere, d.tangled || len(a.More) > 0
	held := v.Told(id).Copy() || d.tangled
	if d.aliased && held && !d.replaces(v, a) {
		d.touched.all = true
		d.touched.members = d.touched.members || wildcard(v) && a.State == cache.Present // else tellGone says so
	}
}

// replaces reports whether an answer is the one resource that the client holds, in another version.
func (d *deltaState) replaces(v fanout.View, a *cache.Answer) bool {
	if a.Resource == nil || d.tangled {
		return false
	}
	version, some := d.of(v, a.Resource.Name)
	return some && version != a.Resource.Version
}

// keepsDenied reports whether the client has, or came with, a copy of what upstream denies. It would keep that, since
// a denial has no body (MISS-10).
func (d *deltaState) keepsDenied(v fanout.View, a *cache.Answer, name string) bool {
	if a.Negative == nil || v.Leads(name) {
		return false
	}
	_, has := d.of(v, name)
	return has
}

// collectAbsence lists what is sent for a name that leads to nothing. waits says that the removal may have to wait.
func (d *deltaState) collectAbsence(v fanout.View, id cache.ID, a *cache.Answer, asked, forced bool, p *plan) (waits bool) {
	name, told := v.Name(id), v.Told(id)
	has := told.Copy() || d.exact.find(name) != nil
	switch {
	case a.Negative != nil && (forced || a.Seq > told.At()):
		if !d.leavesOut(v, a.Negative, p) {
			p.resources = append(p.resources, a.Negative) // NAME-6
		}
		v.Tell(id, fanout.ToldGone(p.position))
	case a.Negative != nil:
	case d.suppresses && !has:
		v.Tell(id, fanout.ToldGone(p.position))
	case asked:
		p.gone = append(p.gone, name) // MISS-2
		d.tellGone(v, id, p)
	case forced || told == 0 || has:
		d.exact.unclaim(d.exact.find(name))
		p.removed = append(p.removed, name) // MISS-10
		p.removedIDs = append(p.removedIDs, id)
		return true
	}
	return false
}

// collectErrors lists each error of a name once (ERR-9). It keeps back errors that would be the whole response while
// a wildcard waits for its answer: Envoy would take them for the answer (DOWN-DELTA-13).
func (d *deltaState) collectErrors(v fanout.View, p *plan) {
	if d.wildcardAsked && len(p.resources)+len(p.heartbeats)+len(p.gone) == 0 {
		for _, r := range p.leftOut {
			d.tooLarge = append(d.tooLarge, r.Resource)
		}
		p.leftOut = nil
		return
	}
	p.refuse(&d.exchange)
	for _, id := range d.tellable(v, p) {
		if p.collectError(v, id, d.claims(v.Name(id))) {
			put(&d.erred, id, struct{}{})
		}
	}
}

// tellGone notes that the client is told that a name leads to nothing. Members of the wildcard's set that it may have led
// to are wanted as such from now on, though the position has passed them (WILD-16).
func (d *deltaState) tellGone(v fanout.View, id cache.ID, p *plan) {
	v.Tell(id, fanout.ToldGone(p.position))
	d.touched.members = d.touched.members || wildcard(v)
}

// later keeps the removals of a part for another response.
func (d *deltaState) later(p *plan) {
	d.members = d.members || p.removedMembers
	d.changed.add(p.removedIDs...)
	d.touched.names.add(p.removedNames...)
}

// removedNow notes that the removals of a part are sent.
func (d *deltaState) removedNow(p *plan) {
	d.removed(p.removed...)
	for _, name := range p.removedNames {
		drop(&d.touched.resend, name)
	}
	d.sub.Read(func(v fanout.View) {
		for _, id := range p.removedIDs {
			a := v.Answer(id)
			d.clear(id, &a)
			d.tellGone(v, id, p)
		}
		if p.removedMembers {
			d.removedTo = p.position
			v.Set().Passed(d.removedTo)
		}
		if !d.pending() && !d.touched.open {
			d.compact(v)
		}
	})
}
