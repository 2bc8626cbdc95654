package twin

import (
	"fmt"
	"maps"
	"slices"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

// What clients are sent.

// clientTold judges a response to a Delta client.
func (c *Checker) clientTold(id int, resp *discovery.DeltaDiscoveryResponse) {
	who, k, t := c.hear(id, resp.GetTypeUrl(), resp.GetNonce())
	if t == nil {
		return
	}
	c.clients[id].carries(len(resp.GetResources()))
	opening, listed := t.opening, map[string]bool{}
	lost := t.aliasesOf(resp.GetRemovedResources())
	answer := c.answered(t, k, false)
	again := answer && !opening
	p := c.parted(who, t, resp, opening)
	answer = answer || p.answer
	once := func(name string) {
		if listed[name] {
			c.fail("DOWN-DELTA-12", "%s: one response names %s twice", who, name)
		}
		listed[name] = true
	}
	news, postponed, takes := false, false, false
	for _, r := range resp.GetResources() {
		once(r.GetName())
		if r.GetResource() == nil && len(r.GetAliases()) == 0 {
			answer = c.heartbeat(who, k, c.clients[id], t, r.GetName(), r.GetVersion(), r.GetTtl()) || answer
			continue
		}
		news = news || c.isNews(k, t, r.GetName(), r.GetAliases(), r.GetResource().GetValue())
		if r.GetResource() == nil {
			answer = c.denied(who, c.clients[id], k, t, r.GetAliases()) || answer
			continue
		}
		if k.name == "LDS" && slices.ContainsFunc(append(slices.Clone(r.GetAliases()), r.GetName()), t.due) {
			postponed = true // a part of the answer had to wait for clusters
		}
		answer = t.settle(r.GetName(), r.GetAliases()) || t.leftBy(r.GetName()) || answer
		c.content(who, k, c.clients[id], t, r.GetName(), r.GetVersion(), r.GetResource(), r.GetTtl())
	}
	holds := maps.Clone(t.holds)
	for _, name := range resp.GetRemovedResources() {
		once(name)
		_, had := t.holds[name]
		takes = takes || had
		answer = t.settle(name, t.holds[name].aliases) || answer || t.brought[name] || t.left[name] // DOWN-DELTA-11, WILD-8
		c.removed(who, k, t, name, len(resp.GetResources()) > 0 || p.follows || lost[name])
		if k.name == "EDS" {
			delete(c.clients[id].warm, name)
		}
	}
	for _, r := range resp.GetResources() {
		if h, holds := holds[r.GetName()]; holds && r.GetResource() != nil {
			t.holds[r.GetName()] = h // with an alias that this response gives it and takes from others
		}
	}
	for _, e := range resp.GetResourceErrors() {
		answer = true
		name, asked := e.GetResourceName().GetName(), t.asked[e.GetResourceName().GetName()]
		delete(t.asked, name)
		t.owed[name] = true // when the error is over
		if !c.toldLarge(who, c.clients[id], k, t, name, codes.Code(e.GetErrorDetail().GetCode())) {
			c.told(who, k, t, e, asked)
		}
	}
	maps.Copy(p.listed, listed)
	if p.opening && p.left == 0 {
		c.opened(who, c.clients[id], k, t, p.listed)
	}
	postponed = c.completes(c.clients[id], k, t, again) || postponed
	p.answer, p.adds = answer || postponed, p.adds || news
	if len(resp.GetResources())+len(resp.GetRemovedResources())+len(resp.GetResourceErrors()) == 0 && !p.answer {
		c.fail("DOWN-DELTA-14", "%s: a response that says nothing", who)
	}
	if p.answer && !p.since.IsZero() {
		t.since = p.since // an answer in any part makes an answer of all
	}
	c.ordered(who, c.clients[id], k, p.adds, takes, p.answer)
	c.heldBack(id, c.clients[id], k, t, resp.GetNonce(), news, answer)
	c.paced(who, c.clients[id], k, t, resp.GetNonce(), p.answer || p.follows)
}

// clientToldSotW judges a response to a SotW client.
func (c *Checker) clientToldSotW(id int, resp *discovery.DiscoveryResponse) {
	who, k, t := c.hear(id, resp.GetTypeUrl(), resp.GetNonce())
	if t == nil {
		return
	}
	c.clients[id].carries(len(resp.GetResources()))
	if resp.GetVersionInfo() == "" {
		c.fail("DOWN-SOTW-11", "%s: no version", who)
	}
	answer := c.answered(t, k, true) || len(resp.GetResourceErrors()) > 0
	reason := answer || len(t.owed) > 0 || t.reshaped
	t.reshaped = false
	listed := map[string]bool{}
	view, news, heartbeats, renews, first := "", false, false, false, false
	stays := map[string]bool{}
	before := maps.Clone(t.holds)
	for _, body := range resp.GetResources() {
		body, ttl, heartbeat := c.unwrap(who, k, c.clients[id], t, body)
		if heartbeat {
			heartbeats = true
			continue
		}
		r := c.bodies[string(body.GetValue())]
		if listed[r.name] {
			c.fail("DOWN-SOTW-14", "%s: one response has %s twice", who, r.name)
		}
		listed[r.name] = true
		news = news || c.isNews(k, t, r.name, c.aliases(k, r), body.GetValue())
		first = first || t.isFirst(k, r.name, c.aliases(k, r)) // a set with an answer goes whole
		renews = renews || c.setsTTL(c.clients[id], k, t, r)
		view += r.name + "=" + r.label + " "
		answer = t.settle(r.name, c.aliases(k, r)) || answer
		reason = reason || t.erred(r.name, c.aliases(k, r)) // the end of an error is told by sending what there is (ERR-8)
		if k.full {
			delete(t.last, r.name) // a set has everything, changed or not
		}
		if h, had := before[r.name]; k.name == "CDS" && had && h.label == r.label && !c.known[k.name].says(r.name, r.label) {
			stays[r.name] = true // it stays until what refers to it has changed (ORDER-2)
			continue
		}
		c.content(who, k, c.clients[id], t, r.name, r.label, body, ttl)
	}
	if heartbeats && (news || !t.versions[resp.GetVersionInfo()]) {
		c.fail("TTL-8", "%s: heartbeats under the version %s, which the client does not have", who, resp.GetVersionInfo())
	}
	t.versions[resp.GetVersionInfo()] = true
	clear(t.renamed)
	if len(stays) > 0 && !news && len(resp.GetResourceErrors()) == 0 && !c.turns(c.clients[id]) {
		c.fail("ORDER-2", "%s: the set lists what is gone, and nothing has come", who)
	}
	for name := range maps.Clone(t.asked) {
		if !listed[name] && k.full {
			answer = true
			delete(t.asked, name)
		}
	}
	if !k.full && len(resp.GetResources())+len(resp.GetResourceErrors()) == 0 && !answer {
		c.fail("DOWN-DELTA-14", "%s: a response that says nothing", who)
	}
	if k.full {
		for name, h := range before {
			if !listed[name] && t.interest.Covers(name, h.aliases) {
				c.removed(who, k, t, name, true)
			} else if !listed[name] {
				delete(t.holds, name)
			}
		}
		c.lacks(who, k, t, listed)
		if len(stays) == 0 {
			c.versioned(who, k, view, resp.GetVersionInfo())
		}
		if view == t.view && !reason {
			c.fail("DOWN-SOTW-13", "%s: the same set again, for no reason", who)
		}
		t.view = view
		clear(t.owed)
	}
	for _, e := range resp.GetResourceErrors() {
		name := e.GetResourceName().GetName()
		t.owed[name] = true // when the error is over
		if !c.toldLarge(who, c.clients[id], k, t, name, codes.Code(e.GetErrorDetail().GetCode())) {
			c.told(who, k, t, e, t.asked[name] || t.mayGo(k, before, name))
		}
		delete(t.asked, name)
		if listed[name] && codes.Code(e.GetErrorDetail().GetCode()) == codes.NotFound {
			c.fail("MISS-6", "%s: the set lists %s, and says that there is none", who, name)
		}
	}
	c.ordered(who, c.clients[id], k, news, false, answer)
	c.heldBack(id, c.clients[id], k, t, resp.GetNonce(), news, answer || renews || first)
	c.paced(who, c.clients[id], k, t, resp.GetNonce(), answer)
}

// hear judges what holds for every response.
func (c *Checker) hear(id int, url, nonce string) (who string, k kind, t *topic) {
	cl := c.clients[id]
	k, _ = named(url)
	who = fmt.Sprintf("c%d %s", id, k.name)
	if cl == nil || !cl.open || cl.topics[k.name] == nil || cl.topics[k.name].interest.fresh {
		c.fail("G1", "%s: a response that was not asked for (%s)", who, url)
		return who, k, nil
	}
	if nonce == "" || cl.nonces[nonce] {
		c.fail("DOWN-DELTA-3", "%s: the nonce %q again", who, nonce)
	}
	cl.nonces[nonce] = true
	if t := cl.topics[k.name]; t.parts.left == 0 {
		clear(t.over)
	}
	c.silence()
	c.settled()
	c.noteLapse()
	t = cl.topics[k.name]
	if t.nonce = nonce; t.parts.left == 0 {
		t.count++
	}
	t.numbers[nonce] = t.count
	return who, k, t
}

// answered: the response is the answer to a wildcard.
func (c *Checker) answered(t *topic, k kind, sotw bool) bool {
	complete := c.known[k.name].byWildcard.complete
	if t.interest.Wildcard && !complete && (t.opening || sotw && k.full) {
		c.fail("DOWN-DELTA-13", "%s: a wildcard is answered before its set is complete", k.name)
	}
	if (t.whole || t.asked[wildcard]) && complete {
		// A set that was complete before the wildcard was given up may be forgotten; one
		// that has grown just now need not be complete yet (RECON-16). One that is from disk
		// answers no SotW client that came with something, unless that is the same (RECON-19).
		waits := t.returned && c.known[k.name].byWildcard.settling
		if certain := c.since[k.name][wildcard] < c.known[k.name].byWildcard.completed && !c.grows(k); certain && !waits {
			t.whole = false
		}
		t.opening, t.answered = false, true
		delete(t.asked, wildcard)
		return true
	}
	return false
}

// opened: the first answer to a wildcard is the whole set (DOWN-DELTA-13), except what
// the client came with, as long as that is in doubt (RECON-19, ERR-10), and what it asked for by name.
func (c *Checker) opened(who string, cl *clientState, k kind, t *topic, listed map[string]bool) {
	known := c.known[k.name]
	if known.byWildcard.warm {
		return // what is on disk was judged when it was written
	}
	for name, w := range known.byWildcard.words {
		if kept := t.brought[name] && (known.byWildcard.settling || c.doubts[k.name][true] != nil); w.present && !w.unsure && !kept && !listed[name] && !c.knowsLarge(cl, k, t, name, w.label) && t.holds[name].label != w.label && !t.interest.Named(name, w.aliases) && !t.interest.Named(name, known.byName.words[name].aliases) {
			c.fail("DOWN-DELTA-13", "%s: the first answer to the wildcard lacks %s", who, name)
		}
	}
}

// due reports whether a name has no answer.
func (t *topic) due(name string) bool {
	_, due := t.asked[name]
	return due
}

// settle notes that names are answered, and reports whether one of them awaited that.
func (t *topic) settle(name string, aliases []string) (asked bool) {
	for _, waiting := range append(slices.Clone(aliases), name) {
		asked = asked || t.asked[waiting]
		delete(t.asked, waiting)
	}
	return asked
}

// leftBy reports whether a client has a resource by an alias that it has given up under the wildcard, and
// that is still to be answered (WILD-8). What the alias led to is sent at once, though a fault may hide the alias.
func (t *topic) leftBy(name string) bool {
	return slices.ContainsFunc(t.holds[name].aliases, func(alias string) bool { return t.asked[alias] && t.left[alias] })
}

// denied judges a negative answer for aliases (NAME-6). It takes nothing from the client: what an alias led to goes with
// its removal (NAME-5, H-17).
func (c *Checker) denied(who string, cl *clientState, k kind, t *topic, aliases []string) (asked bool) {
	for _, alias := range aliases {
		if k.name == "EDS" {
			delete(cl.warm, alias)
		}
		if t.interest.Names[alias] && !c.known[k.name].byName.absent(alias) {
			c.fail("G4", "%s: %s is denied, and the control plane did not", who, alias)
		}
		asked = t.settle(alias, nil) || asked
		c.goes(k, t, alias)
	}
	return asked
}

// content judges a resource that a client is sent.
func (c *Checker) content(who string, k kind, cl *clientState, t *topic, name, version string, body *anypb.Any, ttl *durationpb.Duration) {
	known, r := c.known[k.name], c.bodies[string(body.GetValue())]
	if r.kind != k.name || r.name != name || body.GetTypeUrl() != k.url {
		c.fail("G1", "%s: %s has a body that was never sent", who, name)
		return
	}
	if !known.says(name, r.label) {
		c.fail("G1", "%s: %s=%s is not what the control plane says", who, name, r.label)
		return
	}
	aliases := c.aliases(k, r)
	if w, ok := known.byWildcard.present(name); !t.interest.Named(name, aliases) && (!t.interest.Wildcard || !ok || w.label != r.label) {
		c.fail("WILD-12", "%s wants %s, and is sent %s=%s", who, t.interest.text(), name, r.label)
	}
	// A name that is asked for once more is answered with what there is (DOWN-DELTA-7).
	if had, holds := t.holds[name]; holds && t.brought[name] && had.label != r.label && !t.owed[name] && !known.spoken(name, r.label) {
		c.fail("RECON-19", "%s: %s=%s is from disk, and replaces what the client came with", who, name, r.label)
	}
	age, since := known.age(name, r.label)
	// What an alias led to falls back to the wildcard's copy when that alias is lost, or was told gone (WILD-16).
	was := t.seen[name]
	own, named := known.byName.present(name)
	falls := (t.interest.Wildcard || known.lends(name, &t.interest) || known.lendsByAlias(name, &t.interest)) && t.interest.Named(name, was.aliases) && !(named && t.interest.Named(name, own.aliases))
	torn := len(t.interest.Names) > 0 && known.torn(name)
	if age < was.at && was.label != r.label && !torn && !falls {
		c.fail("G2", "%s: %s=%s is older than what it was sent before", who, name, r.label)
	}
	t.seen[name] = seen{r.label, age, aliases}
	erred := t.erred(name, aliases)
	// What an alias led to has the TTL of another copy when it falls to the wildcard's set (TTL-12).
	led := func(alias string) bool { // it may have, on disk
		_, open := t.asked[alias]
		return open && slices.Contains(aliased(alias), name)
	}
	member := cl.ttl && t.interest.Wildcard && !t.interest.Names[name] && (t.interest.Named(name, aliases) || slices.ContainsFunc(poolAliases, led))
	if last, told := t.last[name]; told && last == version && !t.owed[name] && !t.left[name] && !torn && !erred && !member && !(t.brought[name] && cl.ttl && known.unlimited(name, r.label)) {
		c.fail("G5", "%s: %s=%s again", who, name, r.label)
	}
	if known.byWildcard.complete {
		delete(t.left, name)
	}
	if !cl.sotw {
		c.fingerprinted(who, k, name, r, aliases, version)
	}
	if e := endpoints(k.name, name); e != "" {
		changed := t.holds[name].label != r.label && t.renamed[name] != r.label
		if changed {
			cl.warm[e] = true
		}
		if eds := cl.topics["EDS"]; eds != nil {
			if changed {
				eds.asked[e] = true
			}
			// The relay does not know that the client had it, or it went and came back: it tells all of its endpoints (ORDER-4).
			if cl.sotw && (t.brought[name] || t.holds[name].since < since) {
				delete(eds.errors, e)
			}
			c.owe(kinds[1], eds, e, false)
		}
	}
	if k.name == "EDS" {
		for _, asked := range append(slices.Clone(aliases), name) {
			delete(cl.warm, asked)
		}
	}
	t.last[name] = version
	for _, over := range append(slices.Clone(aliases), name) {
		delete(t.errors, over) // what lists a name says so, whatever the name leads to
	}
	// A member of the wildcard's set is no answer to a name that has one of its own (WILD-16).
	c.copied(k, t, append(slices.DeleteFunc(slices.Clone(aliases), known.byName.absent), name), age)
	delete(t.brought, name)
	delete(t.owed, name)
	t.holds[name] = held{label: r.label, version: version, since: since, aliases: aliases, ends: c.lasting(who, k, cl, name, r.label, ttl), nonce: t.nonce}
}

// removed judges that a client is told that a name is gone. more: the response says more than that.
func (c *Checker) removed(who string, k kind, t *topic, name string, more bool) {
	kept := func(asked string) bool {
		for name, w := range c.known[k.name].byName.words {
			if w.present && c.kept(k, map[string]bool{asked: true}, name, w) {
				return true
			}
		}
		return false
	}
	if w, had := c.known[k.name].byName.present(name); had && !c.carried(k) && c.evicted(k, name, w) {
		w.unsure = true // no request says so
		c.known[k.name].byName.words[name] = w
	}
	doubted := func(asked string) bool { // or a set does not wait for it, since the client's first request did not name it (DOWN-SOTW-7)
		return t.brought[asked] && c.mayDoubt(k.name, false, asked) || t.sotw && t.later[asked]
	}
	if t.interest.Named(name, nil) && !t.later[name] && c.unvouched(k, t, name) && !c.met(k, t, name) {
		c.fail("MISS-4", "%s came with %s, of which a stream was silent that had carried nothing of the type, and is told that it is gone", who, name)
	}
	expired := slices.ContainsFunc(c.known[k.name].voices(), func(v *voice) bool { return v.words[name].expired })
	if !expired && c.inDoubt(k, name, t, t.brought[name]) { // what expires is gone all the same (TTL-2)
		c.fail("ERR-10", "%s is told that %s is gone, of which upstream has sent a faulty answer", who, name)
	}
	switch gone := c.known[k.name].gone(name, &t.interest, t.brought[name] && !t.led[name], kept, doubted); {
	case gone || c.outlived(k, name, &t.interest) || c.known[k.name].byName.unnamed(name, &t.interest):
	case t.owed[name] && c.known[k.name].byWildcard.unnamed(name, &t.interest): // the copy that the wildcard lent (WILD-16)
	case c.lapsed(k) && c.known[k.name].lends(name, &t.interest):
		c.fail("WILD-11", "%s wants %s, and is told that %s is gone with the wildcard that had lent it", who, t.interest.text(), name)
	default:
		c.fail("G4", "%s wants %s, and is told that %s is gone", who, t.interest.text(), name)
	}
	if last, told := t.last[name]; told && last == "" && !t.owed[name] && !more && !(t.interest.Wildcard && len(t.interest.Names) > 0) { // MISS-8
		c.fail("DOWN-DELTA-14", "%s is told again that %s is gone", who, name)
	}
	t.last[name] = ""
	c.goes(k, t, name)
	delete(t.left, name)
	delete(t.brought, name)
	delete(t.owed, name)
	delete(t.holds, name)
	delete(t.seen, name)
	for _, other := range aliased(name) { // they no longer answer to it
		h, ok := t.holds[other]
		if !ok {
			continue
		}
		h.aliases = slices.DeleteFunc(slices.Clone(h.aliases), func(alias string) bool { return alias == name })
		t.holds[other] = h
	}
}

// aliasesOf are the aliases of resources that a client holds: if a response says that such a resource is
// gone, it says so of the alias, too (NAME-5).
func (t *topic) aliasesOf(names []string) map[string]bool {
	aliases := map[string]bool{}
	for _, name := range names {
		for _, alias := range t.holds[name].aliases {
			aliases[alias] = true
		}
	}
	return aliases
}

// paced judges that changes wait for the last ACK; answers do not (DOWN-DELTA-15).
func (c *Checker) paced(who string, cl *clientState, k kind, t *topic, nonce string, answer bool) {
	hurried := k.name == "CDS" && cl.hold.ranOut(t.owing, c.now)
	if len(t.unacked) > 0 && !answer && !hurried && c.now.Before(t.since.Add(c.ackTimeout)) {
		c.fail("DOWN-DELTA-15", "%s: a change is sent before the last ACK", who)
	}
	if len(t.unacked) == 0 {
		t.owing = c.now
	}
	if len(t.unacked) == 0 || !answer {
		t.since = c.now
	}
	t.unacked = append(t.unacked, nonce)
}
