package session

import (
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
	// resend says that resources are sent whatever versions the client came with
	// (resend_on_reconnect_types).
	resend bool
	// quiet says that the client is sent the removal of a name only if it has a copy, sent or
	// brought, and has not asked again since. A client that waits for the name would take the
	// removal for an answer, and wait for ever (MISS-9).
	quiet bool

	// Something is not sent because it is in doubt (ERR-10): what the client came with and asks
	// for, or what its interest may not cover.
	withholdsBrought, withholdsReleased bool
	// looked says that the client's versions that are not judged yet were looked at, and that
	// nothing has come since that could decide on them. lookedRestored says that some resources were
	// known from disk only at that time.
	looked, lookedRestored bool
	// needed has the endpoints whose cluster was sent before the client asked for endpoints. It
	// is kept in the state of Clusters until then, and in that of Endpoints until the first
	// request (ORDER-4).
	needed nameSet
}

// request takes in one request of the type.
func (d *deltaState) request(req *discovery.DeltaDiscoveryRequest, now time.Time) Note {
	first, note := !d.requested, Note{Type: d.url, Kind: InitialRequest}
	d.requested, d.looked = true, false
	if nonce := req.GetResponseNonce(); !first {
		note = d.takeAck(nonce, req.GetErrorDetail(), now)
	}
	subscribe, unsubscribe := req.GetResourceNamesSubscribe(), req.GetResourceNamesUnsubscribe()
	if first && len(req.GetInitialResourceVersions()) > 0 {
		d.comesBack(req.GetInitialResourceVersions())
	}
	held := d.asMembers(subscribe)
	d.forgive(unsubscribe)
	ledTo := d.givesUp(unsubscribe, slices.Contains(subscribe, fanout.Wildcard))
	// The lists take effect whatever the nonce is (DOWN-DELTA-4).
	asked := d.sub.Delta(subscribe, unsubscribe, now)
	d.asks(&asked, first, held)
	for _, name := range unsubscribe {
		d.answered(name)
	}
	d.leaves(asked.Left...)
	if slices.Contains(unsubscribe, fanout.Wildcard) {
		d.unsubscribed()
		ledTo = append(ledTo, slices.DeleteFunc(d.takeLeft(), d.brings)...) // what the client came with is judged by other rules
		d.wildcardAsked, d.opening = false, false
	}
	d.erase(ledTo, distinct(asked.Gone))
	if !first && d.judging() {
		d.recall(subscribe, unsubscribe)
	}
	return note
}

// comesBack takes in the versions that the client came with.
func (d *deltaState) comesBack(versions map[string]string) {
	d.exact.bring(versions)
	d.reconnected, d.returning = true, d.url == cache.Cluster
	if d.resend {
		d.exact.voidAll(nil)
	}
	for name := range d.needed {
		d.exact.void(name)
	}
}

// asMembers returns what the client holds under the wildcard, as members or because it came with
// it, of the names that it asks for now.
func (d *deltaState) asMembers(subscribe []string) (held map[string]string) {
	if d.sentTo == 0 && len(d.ahead) == 0 || len(subscribe) == 0 {
		return nil
	}
	d.sub.Read(func(v fanout.View) {
		for _, name := range subscribe {
			if version, some := d.of(v, name); some && !subscribes(v, name) {
				put(&held, name, version)
			}
		}
	})
	return held
}

// nowNamed notes what the client holds of members that it asks for by name now and does not give
// up in the same request.
func (d *deltaState) nowNamed(v fanout.View, held map[string]string) {
	for name, version := range held {
		if subscribes(v, name) && !d.quiet && !d.exact.find(name).notes() {
			d.recallName(v, name)
			d.exact.note(name, version, true)
		}
	}
}

// asks takes in what a request asks for. held is what the client has of it as members.
func (d *deltaState) asks(asked *fanout.Asked, first bool, held map[string]string) {
	if len(held) > 0 {
		d.sub.Read(func(v fanout.View) { d.nowNamed(v, held) })
	}
	d.asked.add(asked.Names...)
	for _, name := range asked.New {
		if !first || !d.brings(name) {
			d.await(name)
		}
	}
	if asked.Wildcard {
		d.wildcardAsked = true
		d.opening = d.opening || first
	}
	if asked.Wildcard && !first && d.judging() { // WILD-5
		d.sub.Read(func(v fanout.View) {
			d.exact.voidAll(func(name string) bool { return !subscribes(v, name) })
		})
	}
	if follows := !first || d.quiet || d.needed != nil; follows && len(asked.Names) > 0 {
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
		if d.quiet && !first { // what it has had so far does not count (MISS-9)
			v.Tell(id, 0)
			d.judge(name)
		}
		if _, released := d.released[name]; released && d.exact.find(name).has() && !d.brings(name) {
			d.exact.note(name, "", true) // the client may have dropped the copy that it had because of another name
		}
		if d.released[name].givenUp {
			delete(d.released, name) // the name's answer says the rest
		}
		if d.needed.has(name) || !first && v.Open(id) {
			v.SendAgain(id)
		}
	}
}

func (d *deltaState) due() bool {
	return d.exchange.due() || d.judging()
}

// collect lists what is to be sent.
func (d *deltaState) collect(v fanout.View, push bool, p *part) {
	if d.allows(fanout.Wildcard) { // it depends on everything that the group has
		p.version = v.SystemVersion()
	}
	d.returns(v, d.brings)
	subscribed, synced := v.Wildcard()
	switch {
	case !d.opening || !subscribed:
	case !synced:
		d.starving = starving(v, d.brings)
		return
	case d.postpones && d.reconnected:
		d.postponed, d.starving = true, nil
		return
	}
	d.dismisses(v, p)
	d.collectWildcard(v, push, p)
	d.collectNames(v, push, p)
	d.collectBrought(v, push, p)
	d.collectReleased(v, push, p)
	if push {
		d.doubtOver = false
	}
	aliased := func(r *cache.Resource) bool { return len(r.Aliases) > 0 }
	both := subscribed && len(v.Names()) > 0
	if p.mixed || both || slices.ContainsFunc(p.resources, aliased) {
		p.resources = unique(p.resources) // DOWN-DELTA-12
	}
	p.changed = p.resources
	d.collectRenewals(v, push, p)
	d.saysTooLarge(v, p)
	d.collectErrors(v, p)
	d.expiring(v, p)
	d.starving = starving(v, d.brings)
	if len(p.removed)+len(p.gone) > 0 {
		p.withoutContradiction()
	}
	d.collected(v, p)
}

// collected notes what the client is sent with a part, except for the removals that wait, and
// whether something is withheld.
func (d *deltaState) collected(v fanout.View, p *part) {
	v.Withhold(d.withholdsBrought || d.withholdsReleased)
	d.noteSent(v, p)
	d.gone(p.gone)
	if p.removedMembers && len(p.removed) == 0 {
		p.removedMembers, d.removedTo = false, p.position // another list of the part names each of them
	}
	if d.removedTo != unseen {
		v.Set().Passed(d.removedTo)
	}
}

// collectNames lists the answer to every name that was asked for (DOWN-DELTA-7), and every change
// of a subscribed name. A name without an answer is marked again when it has one (MISS-7).
func (d *deltaState) collectNames(v fanout.View, push bool, p *part) {
	asked := postpone(d, v, d.asked.take(), true)
	var changed []cache.ID
	if push {
		changed = postpone(d, v, d.changed.take(), false)
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

func (d *deltaState) collectName(v fanout.View, id cache.ID, asked bool, p *part) {
	a, name := v.Answer(id), v.Name(id)
	if asked && (a.Error != nil || a.State == cache.Unknown) {
		d.failed.add(id) // H-27
	}
	forced := asked || d.owes(v, id, &a, func(r *cache.Resource) bool { return !d.holds(v, r) && !(v.Restored(id) && d.brings(r.Name)) })
	keeps := d.keepsDenied(v, &a, name)
	d.release(d.leads(v, id, &a)...)
	doubt := a.State == cache.Absent && d.brings(name) && v.Verdict(id, true) == fanout.Doubt
	if doubt || a.State == cache.Unknown {
		return // it is marked again when it has an answer, or the doubt is over
	}
	p.answer = p.answer || asked
	d.answered(name)
	switch {
	case a.State == cache.Present:
		d.collectCopies(v, id, &a, asked, forced, p)
	case keeps:
		p.gone = append(p.gone, name)
		v.Tell(id, 0)
		d.changed.add(id) // one response does not name a resource twice, and the denial may bear the name
	case d.collectAbsence(v, id, &a, asked, forced, p):
		return // it waits, and is paid when the removal is sent
	}
	d.paid(id, &a)
}

// keepsDenied reports whether the client has, or came with, a copy of what upstream denies. It would keep that, since
// a denial has no body (MISS-10).
func (d *deltaState) keepsDenied(v fanout.View, a *cache.Answer, name string) bool {
	if a.Negative == nil || v.Leads(name) {
		return false
	}
	_, has := d.of(v, name)
	return has || d.brings(name)
}

// collectAbsence lists what is sent for a name that leads to nothing. waits says that the removal
// may have to wait.
func (d *deltaState) collectAbsence(v fanout.View, id cache.ID, a *cache.Answer, asked, forced bool, p *part) (waits bool) {
	name, told := v.Name(id), v.Told(id)
	has := told.Copy() || d.exact.find(name).has() // as an alias
	switch {
	case a.Negative != nil && (forced || a.Seq > told.At()):
		if !d.leavesOut(v, a.Negative, p) {
			p.resources = append(p.resources, a.Negative) // NAME-6
		}
		v.Tell(id, fanout.ToldGone(p.position))
	case a.Negative != nil:
	case d.quiet && !has && !d.brings(name):
		v.Tell(id, fanout.ToldGone(p.position))
	case !asked && v.Leads(name): // the client has the resource because of another name
		if version, some := d.of(v, name); some {
			d.exact.note(name, version, true)
		}
		v.Tell(id, fanout.ToldGone(p.position))
	case asked:
		p.gone = append(p.gone, name) // MISS-2
		v.Tell(id, fanout.ToldGone(p.position))
	case forced || told == 0 || has:
		p.removed = append(p.removed, name) // MISS-10
		p.removedIDs = append(p.removedIDs, id)
		return true
	}
	return false
}

// collectCopies lists the resources that a name leads to and that the client does not hold, or
// that it is to be sent all the same.
func (d *deltaState) collectCopies(v fanout.View, id cache.ID, a *cache.Answer, asked, forced bool, p *part) {
	led, restored := v.LedTo(id) != nil, v.Restored(id)
	sent, tooLarge := !v.Told(id).Copy(), 0
	told := v.Told(id)
	for _, r := range a.Resources() {
		at := d.exact.lookUp(r.Hash, r.Name)
		switch {
		case restored && at.brings():
			continue // a copy from disk does not replace what the client came with (RECON-19)
		case at.brings() && at.version == r.Version && !told.Again():
			d.spare(at, r, p)
			sent = true // the client has it as of this position
		case at != nil && at.spared: // another of its names has led here already
		case !forced && d.keeps(v, r, told.At()):
		case d.leavesOut(v, r, p):
			tooLarge++
			continue
		default:
			p.resources, sent = append(p.resources, r), true
			d.answers(v, r)
		}
		if led {
			d.sentFor(r)
			sent = true // exact says what was sent, and when
		}
	}
	switch {
	case tooLarge == len(a.Resources()) && !v.Told(id).Copy():
		v.Tell(id, 0) // so that the removal is sent when it is gone (MISS-10)
	case tooLarge < len(a.Resources()) && sent:
		v.Tell(id, fanout.ToldCopy(p.position))
	}
}

// collectErrors lists each error of a name once (ERR-9). It keeps back errors that would be the
// whole response while a wildcard waits for its answer: Envoy would take them for the answer
// (DOWN-DELTA-13).
func (d *deltaState) collectErrors(v fanout.View, p *part) {
	if d.wildcardAsked && len(p.resources)+len(p.heartbeats)+len(p.gone) == 0 {
		for _, r := range p.leftOut {
			d.tooLarge = append(d.tooLarge, r.Resource)
		}
		p.leftOut = nil
		return
	}
	p.refuse(&d.exchange)
	for _, id := range d.tellable(v, p) {
		if p.collectError(v, id, d.brings(v.Name(id))) {
			put(&d.erred, id, struct{}{})
		}
	}
}

// later keeps the removals of a part for another response.
func (d *deltaState) later(p *part) {
	d.members = d.members || p.removedMembers
	d.changed.add(p.removedIDs...)
}

// gone notes that the removals of some names are sent, whatever the reason.
func (d *deltaState) gone(names []string) {
	d.judge(names...)
	for _, name := range names {
		d.paidReleased(name)
	}
}

// removedNow notes that the removals of a part are sent.
func (d *deltaState) removedNow(p *part) {
	d.gone(p.removed)
	d.sub.Read(func(v fanout.View) {
		for _, name := range p.removedNames {
			d.sentAhead(v, name, nil)
		}
		for _, id := range p.removedIDs {
			a := v.Answer(id)
			d.paid(id, &a)
			v.Tell(id, fanout.ToldGone(p.position))
		}
		if p.removedMembers {
			d.removedTo = p.position
			v.Set().Passed(d.removedTo)
		}
	})
	d.passed()
}
