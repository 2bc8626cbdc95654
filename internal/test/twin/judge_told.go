package twin

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
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
	cl, listed := c.clients[id], map[string]bool{}
	once := func(name string) {
		if listed[name] {
			c.fail("G5", "%s: one response names %s twice", who, name)
		}
		listed[name] = true
	}
	answer, news, takes := len(resp.GetResourceErrors()) > 0, false, false
	for _, r := range resp.GetResources() {
		once(r.GetName())
		switch {
		case r.GetResource() != nil:
			news = c.isNews(k, t, r.GetName(), r.GetResource()) || news
			answer = t.settle(r.GetName(), append(slices.Clone(r.GetAliases()), t.holds[r.GetName()].aliases...)) || answer
			c.content(who, k, cl, t, r.GetName(), r.GetVersion(), r.GetResource(), r.GetTtl())
		case len(r.GetAliases()) == 0:
			answer = t.brought[r.GetName()] || answer
			c.renewed(t, r.GetName(), r.GetTtl())
		default:
			for _, alias := range r.GetAliases() {
				c.mayDeny(who, k, t, alias)
				answer = t.settle(alias, nil) || answer
			}
		}
	}
	holds := maps.Clone(t.holds)
	for _, name := range resp.GetRemovedResources() {
		once(name)
		h, had := t.holds[name]
		takes = takes || had
		answer = t.brought[name] || answer
		c.removed(who, k, t, name)
		answer = t.settle(name, h.aliases) || answer
	}
	for _, r := range resp.GetResources() {
		if h, holds := holds[r.GetName()]; holds && r.GetResource() != nil {
			t.holds[r.GetName()] = h // with an alias that this response gives it and takes from others
		}
	}
	for _, e := range resp.GetResourceErrors() {
		c.failed(who, k, t, e)
	}
	if len(listed) == 0 {
		delete(t.asked, wildcard) // there is nothing
		answer = true
	}
	goesOn := t.parts > 0 // it is a further part of a response
	t.answers = answer || goesOn && t.answers
	t.adds = news || goesOn && t.adds
	_, left, _ := strings.Cut(resp.GetNonce(), "-")
	t.parts, _ = strconv.Atoi(left)
	c.ordered(who, cl, k, t.adds, takes, t.answers)
	c.heldBack(who, cl, k, resp.GetNonce(), news, t.answers)
	t.unacked = append(t.unacked, resp.GetNonce())
}

// clientToldSotW judges a response to a SotW client.
func (c *Checker) clientToldSotW(id int, resp *discovery.DiscoveryResponse) {
	who, k, t := c.hear(id, resp.GetTypeUrl(), resp.GetNonce())
	if t == nil {
		return
	}
	cl, listed, before := c.clients[id], map[string]bool{}, maps.Clone(t.holds)
	answer, news, renews, first := len(resp.GetResourceErrors()) > 0, false, false, false
	for _, body := range resp.GetResources() {
		body, wrapped := unwrap(body)
		if wrapped != nil && wrapped.GetResource() == nil {
			c.renewed(t, wrapped.GetName(), wrapped.GetTtl())
			renews = true
			continue
		}
		r := c.bodies[string(body.GetValue())]
		if listed[r.name] {
			c.fail("G5", "%s: one response has %s twice", who, r.name)
		}
		listed[r.name] = true
		first = t.isFirst(k, r.name, r.aliases) || first // a set with an answer goes whole
		news = c.isNews(k, t, r.name, body) || news
		renews = renews || wrapped.GetTtl() != nil || !t.holds[r.name].ends.IsZero()
		answer = t.settle(r.name, nil) || answer
		if k.full {
			delete(t.last, r.name) // a set has everything, changed or not
		}
		c.content(who, k, cl, t, r.name, r.label, body, wrapped.GetTtl())
	}
	for name, h := range before {
		if k.full && !listed[name] {
			if t.interest.Covers(name, h.aliases) {
				c.removed(who, k, t, name)
			}
			delete(t.holds, name)
		}
	}
	for name := range t.asked {
		if k.full && !listed[name] {
			answer = true
			delete(t.asked, name)
		}
	}
	for _, e := range resp.GetResourceErrors() {
		c.failed(who, k, t, e)
	}
	c.ordered(who, cl, k, news, false, answer)
	c.heldBack(who, cl, k, resp.GetNonce(), news, answer || renews || first)
	t.unacked = append(t.unacked, resp.GetNonce())
}

// hear judges that a client has asked for what it is sent.
func (c *Checker) hear(id int, url, nonce string) (who string, k kind, t *topic) {
	cl := c.clients[id]
	k = kindOf(url)
	who = fmt.Sprintf("c%d %s", id, k.name)
	if cl != nil && cl.open {
		t = cl.topics[k.name]
	}
	if t == nil || t.interest.fresh {
		c.fail("G1", "%s: a response that was not asked for (%s)", who, url)
		return who, k, nil
	}
	c.conclude()
	c.event()
	t.answered = true
	return who, k, t
}

// settle notes that names are answered, and reports whether one of them awaited that. What no name leads to answers
// the wildcard.
func (t *topic) settle(name string, aliases []string) (awaited bool) {
	for _, asked := range append(slices.Clone(aliases), name) {
		_, is := t.asked[asked]
		awaited = awaited || is
		delete(t.asked, asked)
	}
	if _, open := t.asked[wildcard]; open {
		if !t.interest.Named(name, aliases) {
			delete(t.asked, wildcard)
		}
		awaited = true
	}
	return awaited
}

// content judges a resource that a client is sent.
func (c *Checker) content(who string, k kind, cl *clientState, t *topic, name, version string, body *anypb.Any, ttl *durationpb.Duration) {
	r := c.bodies[string(body.GetValue())]
	switch {
	case r.kind != k.name || r.name != name || body.GetTypeUrl() != k.url:
		c.fail("G1", "%s: %s has a body that upstream has not sent", who, name)
		return
	case !t.interest.Covers(name, r.aliases):
		c.fail("G1", "%s wants %s, and is sent %s=%s", who, t.interest.text(), name, r.label)
	case older(r.label, t.seen[name]) && !c.twoTables(k, t, name, r.label):
		c.fail("G2", "%s: %s=%s is older than %s, which it was sent before or came with", who, name, r.label, t.seen[name])
	case c.again(k, cl, t, name, version):
		c.fail("G5", "%s: %s=%s again", who, name, r.label)
	}
	if e := endpoints(k.name, name); e != "" {
		cl.topic("EDS").pardon(e) // ORDER-4
	}
	t.seen[name], t.last[name] = r.label, sent{version, c.events}
	t.holds[name] = held{label: r.label, version: version, aliases: r.aliases, ends: c.ends(ttl), at: c.events}
	delete(t.brought, name)
}

// older reports whether a label stands for an older revision than another one of the same control plane.
func older(label, than string) bool {
	if label == "" || than == "" || label[0] != than[0] {
		return false
	}
	a, err := strconv.Atoi(label[1:])
	b, other := strconv.Atoi(than[1:])
	return err == nil && other == nil && a < b
}

// twoTables reports whether a client that asks for names may go from one table's copy of a resource to an older one in
// the other (WILD-16).
func (c *Checker) twoTables(k kind, t *topic, name, label string) bool {
	byName, byWildcard := c.lanes[k.name][false].words[name], c.lanes[k.name][true].words[name]
	both := byName.at > 0 && byWildcard.at > 0
	either := byName.is(label) || byWildcard.is(label)
	if named := len(t.interest.Names) > 0; !named || !both {
		return false
	}
	return either && c.excuse(tables)
}

// again reports whether a client is sent what it has, though nothing was said of it since (G5).
func (c *Checker) again(k kind, cl *clientState, t *topic, name, version string) bool {
	last, told := t.last[name]
	named := c.lanes[k.name][false].words[name]
	answersAlias := len(named.aliases) > 0 && named.at > last.at
	switch {
	case !told || last.version != version, c.said[k.name][name] > last.at:
		return false
	case cl.ttl && len(c.limited[k.name]) > 0 && c.excuse(renewals):
		return false
	case len(t.interest.Names) > 0 && (c.moved[k.name] > last.at || answersAlias):
		return !c.excuse(tables)
	}
	return true
}

// removed judges that a client is told that a resource is gone.
func (c *Checker) removed(who string, k kind, t *topic, name string) {
	c.mayDeny(who, k, t, name)
	delete(t.brought, name)
	delete(t.holds, name)
	delete(t.seen, name)
	delete(t.last, name)
	for _, other := range leading(name) { // they no longer answer to it
		if h, ok := t.holds[other]; ok {
			h.aliases = slices.DeleteFunc(slices.Clone(h.aliases), func(alias string) bool { return alias == name })
			t.holds[other] = h
		}
	}
}

// mayDeny judges that a client is told that a name leads to nothing.
func (c *Checker) mayDeny(who string, k kind, t *topic, name string) {
	if !c.mayGo(k, t, name) {
		c.fail("G4", "%s wants %s, and is told that %s is gone", who, t.interest.text(), name)
	}
}

// mayGo reports whether a client may be told that a name leads to nothing (G4): at some moment since the client was
// sent what it has, or asked for it, it was not there, or upstream has said so, or was silent about it.
func (c *Checker) mayGo(k kind, t *topic, name string) bool {
	at, asks := t.asked[name]
	h, held := t.holds[name]
	if held {
		at = h.at
	}
	own := t.interest.Names[name] || t.interest.Wildcard
	switch {
	case !held && !asks, c.world[k.name][name] >= at, !own && c.unnamed[k.name][name] >= at:
		return true
	case c.denied(k, t, name), c.expired(k, name):
		return true
	}
	for _, p := range c.planes {
		if used := c.used[p.number] || len(c.used) == 0; used && !p.leads(k, &t.interest, name) {
			return true
		}
	}
	if !own && c.leadsElsewhere(k, t, name) {
		switch {
		case t.brought[name]:
			return c.excuse(shared)
		case c.lanes[k.name][false].words[name].label == "":
			return c.excuse(tables)
		}
		return false
	}
	if asMember := t.interest.Wildcard && !t.interest.Names[name]; !asMember {
		return false
	}
	members := c.lanes[k.name][true]
	return members.answered && !members.words[name].there() && c.excuse(lacking)
}

// leadsElsewhere reports whether the names of a client that lead to a resource by alias lead to others in the table of
// names.
func (c *Checker) leadsElsewhere(k kind, t *topic, name string) bool {
	words := c.lanes[k.name][false].words
	return slices.ContainsFunc(poolNames, func(other string) bool {
		w := words[other]
		return w.there() && slices.ContainsFunc(w.aliases, func(alias string) bool { return t.interest.Names[alias] })
	})
}

// denied reports whether upstream's last word on one of the names that lead a client to a resource is that there is nothing.
func (c *Checker) denied(k kind, t *topic, name string) bool {
	names := append(slices.Clone(t.holds[name].aliases), name)
	for _, p := range c.planes {
		names = append(names, p.world[k.name][name].Aliases...)
	}
	for _, of := range c.lanes[k.name] {
		for _, asked := range names {
			if of.words[asked].denies() {
				return true
			}
		}
	}
	return false
}

// leads reports whether there is a resource of that name which a client wants, or one that has it as an alias.
func (p *controlPlane) leads(k kind, i *Interest, name string) bool {
	if r, is := p.world[k.name][name]; is && i.Covers(name, r.Aliases) {
		return true
	}
	return !i.bare && slices.ContainsFunc(leading(name), func(other string) bool { return slices.Contains(p.world[k.name][other].Aliases, name) })
}

// failed judges an error that a client is sent. The relay's own NOT_FOUND says that a name leads to nothing.
func (c *Checker) failed(who string, k kind, t *topic, e *discovery.ResourceError) {
	name := e.GetResourceName().GetName()
	if e.GetErrorDetail().GetCode() == notFound && strings.HasPrefix(e.GetErrorDetail().GetMessage(), "xds-relay: ") {
		c.mayDeny(who, k, t, name)
	}
	delete(t.asked, name)
	t.pardon(name) // the end of an error is told by sending what there is (ERR-8)
}

// renewed notes a heartbeat: a resource without a body, which renews what a client has (TTL-4).
func (c *Checker) renewed(t *topic, name string, ttl *durationpb.Duration) {
	if h, has := t.holds[name]; has {
		h.ends = c.ends(ttl)
		t.holds[name] = h
	}
}

// unwrap takes a resource out of what a SotW response has it in, if it has a TTL.
func unwrap(body *anypb.Any) (inner *anypb.Any, wrapped *discovery.Resource) {
	var r discovery.Resource
	if !body.MessageIs(&r) || body.UnmarshalTo(&r) != nil {
		return body, nil
	}
	return r.GetResource(), &r
}
