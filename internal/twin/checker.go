package twin

import (
	"fmt"
	"maps"
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// Checker reads the log of all messages, one at a time, and notes what breaks a
// guarantee (reliability.md §3) or a rule of one stream (protocol.md). This file is
// the control plane's side; checker_client.go is the clients'.
type Checker struct {
	// What is expected of time.
	linger, missing, settle, ackTimeout time.Duration

	now     time.Time
	events  int                   // so far: requests of clients, and responses of the control plane
	known   map[string]*knowledge // by kind; of this life of the relay
	bodies  map[string]content
	streams map[int]*relayStream
	clients map[int]*clientState
	// wanted is when the last client gave a name up, by kind; since is the event with
	// which the first one asked for it.
	wanted map[string]map[string]time.Time
	since  map[string]map[string]int
	// versions: content ⇔ version, over all lives of the relay (RECON-1, RECON-2).
	versionOf, contentOf map[string]string
	// before is what the last stream that carried a kind by name was subscribed to.
	before map[string]map[string]time.Time
	// proven is until when a stream of the relay's was known to work, since it had
	// answered, or lasted.
	proven time.Time
	// short is what a request of the relay's may take in bytes; 0: anything.
	short int
	// refused: the control plane has ended a stream for the sake of a type.
	refused bool
	// strikes count the streams that it has ended just after it was asked for a type.
	strikes map[string]int

	// disk is what was saved last, and restored when the last relay began with it.
	disk      *onDisk
	loaded    map[string]map[string]bool
	loadedAt  time.Time
	forgetful bool // SotW upstream cannot say what is gone, save of full sets (TRANSLATE-7)
	uncertain bool // there were suspects, which do not linger (H-41)

	// Violations, each beginning with the id of what is broken.
	Violations []string
}

func newChecker(s Settings, bodies map[string]content) *Checker {
	c := &Checker{
		linger: s.Linger, settle: s.Settle, short: s.Request, missing: missingAfter, ackTimeout: ackTimeout,
		bodies: bodies, clients: map[int]*clientState{}, wanted: map[string]map[string]time.Time{}, since: map[string]map[string]int{},
		versionOf: map[string]string{}, contentOf: map[string]string{}, strikes: map[string]int{},
	}
	c.relayStarted()
	for _, k := range kinds {
		c.wanted[k.name], c.since[k.name] = map[string]time.Time{}, map[string]int{}
	}
	return c
}

func (c *Checker) fail(rule, format string, a ...any) {
	c.Violations = append(c.Violations, rule+": "+fmt.Sprintf(format, a...))
}

// relayStarted: a relay has no streams at first, and knows nothing but what is on disk.
func (c *Checker) relayStarted() {
	c.known, c.streams, c.before, c.proven = map[string]*knowledge{}, map[int]*relayStream{}, map[string]map[string]time.Time{}, c.now
	for _, k := range kinds {
		c.known[k.name] = &knowledge{newVoice(), newVoice(), map[string]bool{}}
	}
	c.load()
}

// relayStream is a stream of the relay's to the control plane, as the relay has
// made it.
type relayStream struct {
	opened time.Time
	sotw   bool
	lanes  map[string]*relayLane // by kind
}

// relayLane is what a stream is subscribed to, of one type.
type relayLane struct {
	wildcard bool                 // what it is used for; for good (WILD-13)
	names    map[string]time.Time // when subscribed
	begun    time.Time
	pending  map[string]bool // nonces that await a verdict → it must be a NACK
	first    time.Time       // response since the wildcard was subscribed
	bare     int             // the event after which it began without versions; 0: it began with them
	shown    map[string]bool // if it began with some, but not all (UP-17)
	asked    int             // the event after which it was asked for
	heard    bool            // anything of the type
	latest   time.Time       // response
}

func (c *Checker) upOpened(id int, sotw bool) {
	c.streams[id] = &relayStream{opened: c.now, sotw: sotw, lanes: map[string]*relayLane{}}
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
}

// upEnds: the control plane ends a stream. Having done so twice just after it was asked
// for a type, it may be refusing that (H-39), which does not linger then (H-41).
func (c *Checker) upEnds(id int) {
	for kind, l := range c.streams[id].lanes {
		if !l.heard && c.now.Sub(l.begun) < time.Second {
			c.strikes[kind]++
			c.refused = c.refused || c.strikes[kind] > 1
		}
	}
}

// silence notes the names that have gone unanswered for too long (MISS-3), and what
// they led to and was not said again, though no version was shown of it (RECON-12).
func (c *Checker) silence() {
	for _, s := range c.streams {
		for kind, l := range s.lanes {
			v := c.known[kind].byName
			for name, since := range l.names {
				if _, known := v.words[name]; !l.wildcard && !known && c.now.Sub(since) >= c.missing && !v.matches(name, surely) {
					v.words[name] = word{silent: true}
				}
			}
			if !l.wildcard && c.now.Sub(l.begun) >= missingExplicit {
				v.doubt(l.bare, l.shown)
			}
		}
	}
}

// upAsked judges a request of the relay's.
func (c *Checker) upAsked(id int, req *discovery.DeltaDiscoveryRequest) {
	s := c.streams[id]
	k, ok := named(req.GetTypeUrl())
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
	subscribe, unsubscribe := req.GetResourceNamesSubscribe(), req.GetResourceNamesUnsubscribe()
	resumed := l == nil
	if resumed {
		l = &relayLane{names: map[string]time.Time{}, begun: c.now, pending: map[string]bool{}}
		l.wildcard = len(subscribe) == 0 || slices.Contains(subscribe, wildcard)
		s.lanes[k.name] = l
		if len(subscribe) == 0 {
			subscribe = []string{wildcard}
		}
	} else if len(req.GetInitialResourceVersions()) > 0 {
		c.fail("RECON-8", "versions come with a type's first request only")
	}
	for _, name := range unsubscribe {
		if _, ok := l.names[name]; !ok {
			c.fail("G10", "%s %s is dropped, and was not asked for", k.name, name)
		}
		if at, ok := c.wanted[k.name][name]; ok && c.now.Sub(at) < c.linger && !c.refused && c.known[k.name].voice(l.wildcard).matched(name) {
			c.fail("UP-7", "%s %s is dropped %v after its last client left", k.name, name, c.now.Sub(at))
		}
		delete(l.names, name)
	}
	for _, name := range subscribe {
		if slices.Contains(unsubscribe, name) {
			c.fail("UP-8", "%s %s is dropped and asked for in one request", k.name, name)
		}
		if _, again := l.names[name]; again || l.wildcard != (name == wildcard) {
			c.fail("G10", "%s %s is asked for, twice or on a stream used otherwise (WILD-13)", k.name, name)
		}
		if !c.isWanted(k, name) && !(l.begun.Equal(c.now) && c.lingers(k, name)) {
			c.fail("G10", "%s %s is asked for, and nobody wants it", k.name, name)
		}
		l.names[name] = c.now
		l.first, l.asked = time.Time{}, c.events
	}
	if !resumed {
		if len(unsubscribe) > 0 {
			c.upForgets(k, l, unsubscribe)
		}
		return
	}
	all := c.follows(k, l)
	c.upForgets(k, all, nil)
	c.upResumed(k, all, req.GetInitialResourceVersions(), s.sotw)
	l.bare, l.shown = all.bare, all.shown
}

// follows is a lane as it is once the requests that follow the first have come, too:
// what is asked for may not fit into one (UP-17).
func (c *Checker) follows(k kind, l *relayLane) *relayLane {
	all := *l
	if all.names = maps.Clone(l.names); c.short == 0 || l.wildcard {
		return &all
	}
	names := slices.Collect(maps.Keys(c.wanted[k.name]))
	names = slices.DeleteFunc(names, func(name string) bool { return !c.lingers(k, name) })
	for _, name := range append(names, Union(c.interests(k))...) {
		if _, ok := all.names[name]; !ok && name != wildcard {
			all.names[name] = c.now
		}
	}
	return &all
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
		c.known[k.name].byName.forget(l.names, unsubscribed, func(name string, w word) bool { return c.kept(k, again, name, w) })
	case len(l.names) == 0:
		c.known[k.name].byWildcard = newVoice()
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
func (c *Checker) upResumed(k kind, l *relayLane, versions map[string]string, sotw bool) {
	v := c.known[k.name].voice(l.wildcard)
	if (len(versions) == 0 || c.short > 0) && !sotw {
		l.bare, l.shown = c.events, map[string]bool{}
		for name := range versions {
			l.shown[name] = true
		}
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
	for name, version := range versions {
		w, ok := v.present(name)
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

// isWanted: somebody wants a name now, or did not long ago (UP-7).
func (c *Checker) isWanted(k kind, name string) bool {
	if at, ok := c.wanted[k.name][name]; ok && c.now.Sub(at) <= c.linger+time.Second {
		return true
	}
	return slices.ContainsFunc(c.interests(k), func(i *Interest) bool {
		return i.Names[name] || name == wildcard && i.Wildcard
	})
}

// lingers: when the last stream worked, a name had not lingered for long enough. Until
// another one works, that goes on.
func (c *Checker) lingers(k kind, name string) bool {
	at, ok := c.wanted[k.name][name]
	return ok && at.Add(c.linger+time.Second).After(c.proven)
}

// lapsed: nobody wants the wildcard, and no stream carries it, or not for much longer,
// so that the relay has forgotten its set.
func (c *Checker) lapsed(k kind) bool {
	if slices.Contains(Union(c.interests(k)), wildcard) {
		return false
	}
	if left, ok := c.wanted[k.name][wildcard]; ok && c.now.Sub(left) >= c.linger {
		return true // it may be about to say so
	}
	for _, s := range c.streams {
		if l := s.lanes[k.name]; l != nil && l.wildcard && len(l.names) > 0 {
			return false
		}
	}
	return true
}

// interests are those of all clients in a type.
func (c *Checker) interests(k kind) (all []*Interest) {
	for _, cl := range c.clients {
		if t := cl.topics[k.name]; cl.open && t != nil {
			all = append(all, &t.interest)
		}
	}
	return all
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
	if len(l.names) == 0 && (l.wildcard || len(Union(c.interests(k))) == 0) {
		return // H-32
	}
	v := known.voice(l.wildcard)
	v.warm = false
	l.heard, l.latest = true, c.now
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
		w := word{label: c.bodies[string(r.GetResource().GetValue())].label, version: r.GetVersion(), aliases: r.GetAliases(), at: c.events}
		covered, surely := c.covered(k, l, name, w.aliases)
		if w.unsure = !surely && !l.wildcard || lapsed; l.wildcard || covered {
			c.changed(k, v.set(name, w))
		} else if before, had := v.words[name]; had {
			delete(v.words, name) // it has lost the alias it was wanted for
			c.changed(k, v.lose(before))
		}
	}
	for _, name := range resp.GetRemovedResources() {
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

const notFound = 5

// covered: the relay has asked for a resource, or, not surely, is about to.
func (c *Checker) covered(k kind, l *relayLane, name string, aliases []string) (covered, surely bool) {
	for asked := range l.names {
		if answers(name, aliases, asked) {
			return true, true
		}
	}
	return c.isWanted(k, name) || slices.ContainsFunc(aliases, func(alias string) bool { return c.isWanted(k, alias) }), false
}

// changed: clients may be told of these names again (DOWN-DELTA-14).
func (c *Checker) changed(k kind, names []string) {
	for _, cl := range c.clients {
		if t := cl.topics[k.name]; t != nil {
			for _, name := range names {
				t.owed[name] = true
			}
		}
	}
}

// settled notes which wildcard sets are complete by now (RECON-16).
func (c *Checker) settled() {
	for _, s := range c.streams {
		for kind, l := range s.lanes {
			if !l.wildcard && c.now.Sub(l.begun) >= settleCap {
				c.known[kind].byName.warm = false
			}
			if l.wildcard && !l.first.IsZero() && c.now.Sub(l.first) >= c.settle {
				c.whole(l, c.known[kind].byWildcard)
			}
		}
	}
}

// grows: a wildcard's set may be waiting for more.
func (c *Checker) grows(k kind) bool {
	for _, s := range c.streams {
		if l := s.lanes[k.name]; l != nil && l.wildcard && c.now.Sub(l.latest) < c.settle {
			return true
		}
	}
	return false
}
