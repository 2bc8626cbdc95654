package twin

import (
	"maps"
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// What the relay says to the control planes, and they to it.

// relayStream is a stream of the relay's to the control plane, as the relay has
// made it.
type relayStream struct {
	plane  int
	opened time.Time
	latest time.Time // response
	sotw   bool
	lanes  map[string]*relayLane // by kind
}

// relayLane is what a stream is subscribed to, of one type.
type relayLane struct {
	wildcard bool                 // what it is used for; for good (WILD-13)
	names    map[string]time.Time // when subscribed
	again    map[string]time.Time // the same of those that are to be asked for again (UP-19)
	begun    time.Time
	pending  map[string]bool   // nonces that await a verdict → it must be a NACK
	first    time.Time         // response since the wildcard was subscribed
	bare     int               // the event after which it began; what was said before, and is not among shown, is in doubt until it is complete (RECON-12)
	resumed  int               // the event after which it began
	shown    map[string]string // versions with which it began
	sign     bool              // its first answer announces one of those again (RECON-13)
	asked    int               // the event after which it was asked for
	heard    bool              // anything of the type
	all      bool              // it has shown what it was not asked for, of a full-state type: no name is given up on it (UP-9)
	latest   time.Time         // response
}

func (c *Checker) upOpened(id, plane int, sotw bool) {
	c.streams[id] = &relayStream{plane: plane, opened: c.now, sotw: sotw, lanes: map[string]*relayLane{}}
	c.forgetful = c.forgetful || sotw
}

func (c *Checker) upClosed(id int) {
	c.silence()
	c.settled()
	if s := c.streams[id]; s != nil {
		if c.now.Sub(s.opened) >= time.Second {
			c.proven = c.now
		}
		for kind, l := range s.lanes {
			if !l.wildcard {
				c.before[kind] = l.names
			}
		}
	}
	delete(c.streams, id)
	c.noteLapse()
}

// upEnds: the control plane ends a stream. Having done so twice just after it was asked
// for a type, it may be refusing that (H-39), which does not linger then (H-41).
func (c *Checker) upEnds(id int) {
	if c.streams[id] == nil {
		return // a probe
	}
	for kind, l := range c.streams[id].lanes {
		if !l.heard && c.now.Sub(l.begun) < time.Second {
			c.strikes[kind]++
			c.refused = c.refused || c.strikes[kind] > 1
		}
	}
}

// upAsked judges a request of the relay's.
func (c *Checker) upAsked(id int, req *discovery.DeltaDiscoveryRequest) {
	s := c.streams[id]
	k, ok := named(req.GetTypeUrl())
	defer c.noteLapse()
	if s == nil || !ok {
		c.fail("UP-3", "stream %d asks for %q", id, req.GetTypeUrl())
		return
	}
	if req.GetNode() == nil {
		c.fail("UP-2", "a request comes without the node")
	}
	l := s.lanes[k.name]
	if nonce := req.GetResponseNonce(); nonce != "" {
		c.upJudged(k, l, nonce, req)
		return
	}
	c.silence()
	subscribe, unsubscribe := c.once(k, req.GetResourceNamesSubscribe()), c.once(k, req.GetResourceNamesUnsubscribe())
	resumed := l == nil
	if resumed {
		l = &relayLane{names: map[string]time.Time{}, again: map[string]time.Time{}, begun: c.askedAt(s), pending: map[string]bool{}}
		l.wildcard = len(subscribe) == 0 || slices.Contains(subscribe, wildcard)
		s.lanes[k.name] = l
		if len(subscribe) == 0 {
			subscribe = []string{wildcard}
		}
	} else if len(req.GetInitialResourceVersions()) > 0 {
		c.fail("RECON-8", "versions come with a type's first request only")
	}
	given := slices.DeleteFunc(slices.Clone(unsubscribe), func(name string) bool { return c.asksAgain(k, l, name) })
	for _, name := range unsubscribe {
		if _, ok := l.names[name]; !ok && !l.again[name].IsZero() && !slices.Contains(Union(c.interests(k)), name) {
			c.fail("UP-19", "%s %s is dropped twice: it was about to be asked for again", k.name, name)
		} else if !ok {
			c.fail("G10", "%s %s is dropped, and was not asked for", k.name, name)
		}
		if at, ok := c.wanted[k.name][name]; ok && c.now.Sub(at) < c.linger && !c.refused && !c.settings.Small && !c.lingerless[k.name][name] && c.known[k.name].voice(l.wildcard).is(name) {
			c.fail("UP-7", "%s %s is dropped %v after its last client left", k.name, name, c.now.Sub(at))
		}
		delete(l.names, name)
		delete(l.shown, name)
	}
	for _, name := range subscribe {
		if slices.Contains(unsubscribe, name) {
			c.fail("UP-8", "%s %s is dropped and asked for in one request", k.name, name)
		}
		if _, again := l.names[name]; again && !l.all || l.wildcard != (name == wildcard) {
			c.fail("G10", "%s %s is asked for, twice or on a stream used otherwise (WILD-13)", k.name, name)
		}
		if _, again := l.again[name]; !again && !c.isWanted(k, name) && !c.late && !(resumed && c.lingers(k, name)) {
			c.fail("G10", "%s %s is asked for, and nobody wants it", k.name, name)
		}
		first, again := l.again[name]
		if l.names[name] = c.askedAt(s); again {
			l.names[name] = first
			delete(l.again, name)
		}
		l.first, l.asked = time.Time{}, c.events
	}
	if !resumed {
		c.orphan(k, given)
		if len(given) > 0 {
			c.upForgets(k, l, given)
		}
		return
	}
	c.upForgets(k, l, nil)
	c.upResumed(k, s, l, req.GetInitialResourceVersions())
}

// once is a list of names without those that come a second time.
func (c *Checker) once(k kind, names []string) []string {
	single := slices.Compact(slices.Sorted(slices.Values(names)))
	if len(single) < len(names) {
		c.fail("UP-19", "%s: a request has names twice: %q", k.name, names)
		return single
	}
	return names
}

// asksAgain: a name is given up that is wanted and has no copy, to be asked for with the
// next request (UP-19). What is known of it stays.
func (c *Checker) asksAgain(k kind, l *relayLane, name string) bool {
	if l.wildcard || !c.isWanted(k, name) || c.known[k.name].byName.matches(name, surely) {
		return false
	}
	if at, ok := l.names[name]; ok {
		l.again[name] = at
	}
	return true
}

// upForgets drops what the relay is to forget: what it unsubscribes (UP-8), or on a
// new stream all that it does not ask for again.
func (c *Checker) upForgets(k kind, l *relayLane, unsubscribed []string) {
	switch {
	case !l.wildcard:
		again := map[string]bool{} // by now: what was said since may be used (H-1)
		for _, name := range Union(c.interests(k)) {
			again[name] = slices.Contains(unsubscribed, name)
		}
		maps.DeleteFunc(again, func(_ string, again bool) bool { return !again })
		c.known[k.name].byName.forget(l.names, unsubscribed, func(name string, w word) bool {
			return c.kept(k, again, name, w) || unsubscribed != nil && l.all // it may be kept (UP-9)
		})
	case len(l.names) == 0:
		c.forgetWildcard(k)
	}
}

func stamped(names map[string]time.Time) map[string]bool {
	set := map[string]bool{}
	for name := range names {
		set[name] = true
	}
	return set
}

// upResumed judges the versions that a stream begins with (RECON-6, RECON-7).
func (c *Checker) upResumed(k kind, s *relayStream, l *relayLane, versions map[string]string) {
	sotw := s.sotw
	v := c.known[k.name].voice(l.wildcard)
	if !sotw {
		l.bare = c.events
	}
	for name, w := range v.words {
		names := map[string]bool{wildcard: true}
		if !l.wildcard {
			// What only names led to that were given up, or not asked for when the last
			// stream ended, may be forgotten.
			names = stamped(l.names)
			maps.DeleteFunc(names, func(name string, _ bool) bool { _, asked := c.before[k.name][name]; return !asked })
		}
		if _, ok := versions[name]; w.present && !ok && !c.kept(k, names, name, w) {
			// Given up while there was no stream. If it was asked for again the relay may
			// have it still; SotW cannot tell what there is.
			w.unsure = true
			v.words[name] = w
			if !sotw && !(&Interest{Names: stamped(l.names), Wildcard: l.wildcard}).Covers(name, w.aliases) {
				delete(v.words, name)
			}
		}
	}
	l.shown, l.resumed = maps.Clone(versions), c.events
	for name, version := range versions {
		w, ok := v.present(name)
		if ok && w.plane != s.plane {
			c.fail("RECON-8", "the version of %s %s is another control plane's", k.name, name)
		}
		if !ok {
			c.fail("RECON-7", "the version of %s %s is sent, which is not there or not wanted", k.name, name)
		} else if w.version != version {
			c.fail("RECON-6", "the version of %s %s is %q, should be %q", k.name, name, version, w.version)
		}
	}
}

// upJudged: exactly one ACK or NACK for each response, and nothing with it.
func (c *Checker) upJudged(k kind, l *relayLane, nonce string, req *discovery.DeltaDiscoveryRequest) {
	if len(req.GetResourceNamesSubscribe())+len(req.GetResourceNamesUnsubscribe())+len(req.GetInitialResourceVersions()) > 0 {
		c.fail("UP-5", "a verdict on %s changes a subscription", nonce)
	}
	bad, ok := false, false
	if l != nil {
		bad, ok = l.pending[nonce]
		delete(l.pending, nonce)
	}
	switch {
	case !ok:
		c.fail("UP-4", "a verdict on %s %q, which awaits none", k.name, nonce)
	case bad != (req.GetErrorDetail() != nil):
		c.fail("G12", "%s %s is bad: %v, and its verdict %v", k.name, nonce, bad, req.GetErrorDetail())
	}
}

// upSaid takes in a response of the control plane's. bad: it must be NACKed.
func (c *Checker) upSaid(id int, resp *discovery.DeltaDiscoveryResponse, bad bool) {
	k, _ := named(resp.GetTypeUrl())
	s := c.streams[id]
	if s == nil || s.lanes[k.name] == nil {
		return // UP-10
	}
	l, known := s.lanes[k.name], c.known[k.name]
	l.pending[resp.GetNonce()] = bad
	if kept := k.full && !l.wildcard; len(l.names) == 0 && !kept && (l.wildcard || len(Union(c.interests(k))) == 0) {
		return // H-32, save what is kept unasked (UP-9)
	}
	v := known.voice(l.wildcard)
	v.warm = false
	if !l.wildcard {
		v.vouch()
	}
	answered := l.heard
	l.heard, l.latest, s.latest = true, c.now, c.now
	c.events++
	c.proven = c.now
	// A SotW wildcard is never given up in words: who wants it anew asks on another stream.
	lapsed := s.sotw && l.wildcard && c.since[k.name][wildcard] > l.asked
	for _, r := range resp.GetResources() {
		name := r.GetName()
		if r.GetResource() == nil {
			for _, alias := range r.GetAliases() {
				if !v.matches(alias, surely) {
					c.changed(k, v.remove(alias, c.events))
				}
			}
			continue
		}
		w := word{label: c.bodies[string(r.GetResource().GetValue())].label, version: r.GetVersion(), aliases: r.GetAliases(), at: c.events, plane: s.plane}
		if before := v.words[name]; !answered && l.shown[name] != "" && (l.shown[name] == w.version || before.present && before.label == w.label) {
			l.sign = true
		}
		covered, surely := c.covered(k, l, name, w.aliases)
		c.early = c.early || covered && !surely && !l.wildcard
		l.all = l.all || k.full && !surely
		unasked := k.full && !l.wildcard && !covered // kept, as long as there is room (UP-9)
		if w.unsure = !surely && !l.wildcard || lapsed; l.wildcard || covered || unasked {
			c.changed(k, v.set(name, w))
		} else if before, had := v.words[name]; had {
			delete(v.words, name) // it has lost the alias it was wanted for
			c.changed(k, v.lose(before))
		}
	}
	for _, name := range resp.GetRemovedResources() {
		c.lingerless[k.name][name] = true
		c.changed(k, v.remove(name, c.events))
	}
	for _, e := range resp.GetResourceErrors() {
		known.erred[e.GetResourceName().GetName()] = true
		if e.GetErrorDetail().GetCode() == notFound {
			c.changed(k, v.remove(e.GetResourceName().GetName(), c.events))
		}
	}
	if l.wildcard {
		if l.first.IsZero() {
			l.first = c.now
		}
		if c.settle == 0 || s.sotw {
			c.whole(l, v)
		}
	}
}

// whole notes that a wildcard's set is complete. What was not said again to a stream
// that showed no versions may be gone (RECON-12).
func (c *Checker) whole(l *relayLane, v *voice) {
	v.complete, v.completed, v.settling = true, c.events, false
	v.doubt(l.bare, l.shown)
	l.bare = 0
}
