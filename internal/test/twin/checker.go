package twin

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// Checker reads the log of all messages, one at a time, and notes what breaks a
// guarantee (ARCHITECTURE.md) or a rule of one stream (protocol.md). This file is
// the control plane's side; checker_client.go is the clients'.
type Checker struct {
	// What the relay is configured with.
	maxResponse                         int
	linger, missing, settle, ackTimeout time.Duration

	now     time.Time
	round   int                   // how often somebody has said something to the relay, or time has passed
	reasons map[reason]int        // why what is not served is not, when all is quiet
	events  int                   // how many there were so far: requests of clients, responses of the control plane
	known   map[string]*knowledge // by kind; of this life of the relay
	bodies  map[string]content
	streams map[int]*relayStream
	clients map[int]*clientState
	// wanted is when the last client gave a name up, by kind; since is the event with
	// which the first one asked for it.
	wanted map[string]map[string]time.Time
	// gone are names that were absent when nobody wanted them any more, or since: they do not linger (UP-7).
	gone  map[string]map[string]bool
	since map[string]map[string]int
	left  map[string]map[string]int // the event with which the last one gave it up
	// askedBefore is what wildcardAsked was before clients wanted the wildcard the last time, by kind.
	askedBefore map[string]int
	// versions: content ⇔ version, over all lives of the relay (RECON-1, RECON-2).
	versionOf, contentOf map[string]string
	// before is what the last stream that carried a kind by name was subscribed to.
	before map[string]map[string]time.Time
	// proven is the last moment at which a stream of the relay's is known to have worked, since it
	// had answered or lasted; surely the last one at which a stream worked for certain.
	proven, surely time.Time
	// back is when a stream worked again after none had for a while. Names that have lingered for
	// long enough by then are given up soon after.
	back time.Time
	// refused: the control plane has ended streams because of a type.
	refused bool
	// strikes counts, by type, the streams that it has ended just after it was asked for the type.
	strikes map[string]int

	// disk is what was saved last, and restored when the last relay began with it.
	disk     *onDisk
	openDisk bool // the disk is not encrypted, and so has no secrets
	loaded   map[string]map[string]bool
	loadedAt time.Time

	// What kind of control plane this is.
	settings  Settings
	second    bool // there is another one
	remembers bool // it sends of full-state types what nobody asks for (UP-9)
	marks     bool // it says how many parts of an answer follow (RECON-16)
	ignores   bool // it does not read the versions that a stream begins with
	forgetful bool // it speaks SotW, which says of full-state types only what is gone (TRANSLATE-7)
	evicts    bool // one name of a type lingers, others may not (bounds.go)
	uncertain bool // it ended streams because of types, and suspects do not linger (H-41)

	// hungSince is since when each control plane hangs that does. late: what the control plane hears
	// now was said since then (over gRPC).
	hungSince map[int]time.Time
	late      bool
	// crossed are, by stream, resources whose removal the server may never send (servers.go).
	crossed map[int]map[string]bool
	// orphans are resources whose names were given up while an alias leads to them, by kind and name.
	orphans  map[string]bool
	lapsedAt map[string]time.Time       // since when wildcards may be given up, by kind
	doubts   map[string]map[bool]*doubt // what faults have left open, by kind and whether by wildcard (fault.go)
	news     bool                       // something was said since it was last judged who keeps up (ORDER-1)
	erredAt  map[string]int             // the event with which upstream last sent an error, by kind and name

	// Violations, each beginning with the id of what is broken.
	Violations []string
}

func newChecker(s Settings, bodies map[string]content) *Checker {
	c := &Checker{
		maxResponse: largestResponse, linger: s.Linger, settle: s.Settle, missing: missingAfter, ackTimeout: ackTimeout,
		settings: s, second: s.Second != "", evicts: s.Bounded(boundLinger),
		remembers: strings.Contains(s.Server, remembers),
		ignores:   strings.Contains(s.Server, ignores),
		marks:     strings.Contains(s.Server, marks),

		bodies: bodies, clients: map[int]*clientState{}, reasons: map[reason]int{}, erredAt: map[string]int{},
		wanted: map[string]map[string]time.Time{}, gone: map[string]map[string]bool{}, since: map[string]map[string]int{}, left: map[string]map[string]int{},
		versionOf: map[string]string{}, contentOf: map[string]string{}, strikes: map[string]int{},
		hungSince: map[int]time.Time{}, crossed: map[int]map[string]bool{}, orphans: map[string]bool{}, lapsedAt: map[string]time.Time{}, askedBefore: map[string]int{},
	}
	c.relayStarted()
	for _, k := range kinds {
		c.wanted[k.name], c.since[k.name], c.left[k.name], c.gone[k.name] = map[string]time.Time{}, map[string]int{}, map[string]int{}, map[string]bool{}
	}
	return c
}

func (c *Checker) fail(rule, format string, a ...any) {
	c.Violations = append(c.Violations, rule+": "+fmt.Sprintf(format, a...))
}

// relayStarted notes that a relay has begun: it has no streams, and knows only what is on disk.
func (c *Checker) relayStarted() {
	clear(c.lapsedAt)
	for _, cl := range c.clients {
		for _, t := range cl.topics {
			clear(t.failures)
		}
	}
	c.doubts = map[string]map[bool]*doubt{}
	for _, k := range kinds {
		c.doubts[k.name] = map[bool]*doubt{}
	}
	c.known, c.streams, c.before = map[string]*knowledge{}, map[int]*relayStream{}, map[string]map[string]time.Time{}
	c.proven, c.surely = c.now, c.now
	for _, k := range kinds {
		c.known[k.name] = &knowledge{newVoice(), newVoice(), map[string]bool{}}
	}
	c.load()
}

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
	wildcard bool                 // it is used for the wildcard, else for names; that never changes (WILD-13)
	names    map[string]time.Time // when subscribed
	again    map[string]time.Time // the same of names that were given up to be asked for again (UP-19)
	paired   map[string]bool      // names that were, and have had no answer since but removals
	before   map[string]int       // the value of asked when they were given up
	erred    map[string]bool      // names that were answered with an error, which stops the timer (ERR-8)
	begun    time.Time
	pending  map[string]bool // nonces that await a verdict, and whether it must be a NACK
	first    time.Time       // of the first response since the wildcard was subscribed
	// doubtUpTo is an event: what was said until then, and is not among shown, is in doubt once all has been said (RECON-12).
	doubtUpTo int
	resumed   int               // the event after which it began
	shown     map[string]string // versions with which it began
	sign      bool              // the first answer announced one of these again (RECON-13)
	asked     int               // the event after which it was asked for
	heard     bool              // anything of the type
	unasked   bool              // something that nobody had asked for: no name is unsubscribed (UP-9)
	latest    time.Time         // response
	faulty    map[string]bool   // names that came with a fault, and have had no sound answer since
	leaving   []string          // members that were removed before the set was complete
}

func (c *Checker) upOpened(id, plane int, sotw bool) {
	c.streams[id] = &relayStream{plane: plane, opened: c.now, sotw: sotw, lanes: map[string]*relayLane{}}
	c.forgetful = c.forgetful || sotw
}

func (c *Checker) upClosed(id int) {
	c.silence()
	c.settled()
	if s := c.streams[id]; s != nil {
		if _, hung := c.hungSince[s.plane]; !hung && c.now.Sub(s.opened) >= time.Second {
			c.works(!s.latest.IsZero() || c.now.Sub(s.opened) >= silentWorks)
		}
		for kind, l := range s.lanes {
			if !l.wildcard {
				c.before[kind] = l.names
				c.known[kind].byName.over()
			} else if s.grows(kindOf(kind), c.now.Add(-c.settle-1)) { // or it ends just when the set is complete
				c.known[kind].byWildcard.grew = true
			}
		}
	}
	delete(c.streams, id)
	delete(c.crossed, id)
	c.noteLapse()
}

// upEnds notes that the control plane ends a stream. When it has done so twice just after it was
// asked for a type, it may be refusing that type (H-39), and then nothing of it lingers (H-41).
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

// silence notes the names that have gone unanswered for too long (MISS-3). What they led to is in
// doubt if the stream showed no version of it and upstream has not sent it again (RECON-12).
func (c *Checker) silence() {
	c.expire()
	for id, s := range c.streams {
		for kind, l := range s.lanes {
			v := c.known[kind].byName
			asked := maps.Clone(l.names)
			maps.Copy(asked, l.again) // just being asked for again
			for name, since := range asked {
				if d := c.doubts[kind][false]; !l.wildcard && d != nil && d.hidden != id && c.now.Sub(since) >= c.missing && c.alive(s, since) {
					d.hidden = 0 // it has had the time to say all there is
				}
				w, known := v.words[name]
				if w.silentFrom.After(since) {
					since = w.silentFrom
				}
				if open := !known || w.silent && w.unsure; !l.wildcard && open && !l.erred[name] && c.now.Sub(since) >= c.missing && !v.matches(name, surely) && c.alive(s, since) {
					if d := c.doubts[kind][false]; d != nil && (d.names[name] == id || d.hidden == id && c.mayHide(d, kind, false, name)) {
						continue // no timer of this stream makes it absent (ERR-10)
					}
					c.sound(kindOf(kind), false, name)
					_, hung := c.hungSince[s.plane]
					v.words[name] = word{
						silent: true, at: c.events,
						unvouched: !l.heard && (!known || w.unvouched),   // it may know it still from before
						unsure:    hung && c.now.Sub(since) == c.missing, // a stream that hangs may end just now (UP-13)
					}
					c.gone[kind][name] = true
					for _, cl := range c.clients {
						if t := cl.topics[kind]; t != nil {
							delete(t.errors, name) // what changes and changes back may be sent again (DOWN-DELTA-14)
						}
					}
					delete(l.paired, name) // a removal counts from now (UP-19)
				}
			}
			if !l.wildcard && c.now.Sub(l.begun) >= missingExplicit {
				v.doubt(l.doubtUpTo, l.shown)
			}
		}
	}
}

// upAsked judges a request of the relay's.
func (c *Checker) upAsked(id int, req *discovery.DeltaDiscoveryRequest) {
	c.heard()
	c.silence() // names that are absent by now do not linger (UP-7)
	c.expire()
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
	subscribe, unsubscribe := req.GetResourceNamesSubscribe(), req.GetResourceNamesUnsubscribe()
	resumed := l == nil
	if resumed {
		l = &relayLane{names: map[string]time.Time{}, again: map[string]time.Time{}, paired: map[string]bool{}, before: map[string]int{}, erred: map[string]bool{}, begun: c.askedAt(s), pending: map[string]bool{}}
		l.wildcard = len(subscribe) == 0 || slices.Contains(subscribe, wildcard)
		s.lanes[k.name] = l
		if len(subscribe) == 0 {
			subscribe = []string{wildcard}
		}
	} else if len(req.GetInitialResourceVersions()) > 0 {
		c.fail("RECON-8", "versions come with a type's first request only")
	}
	givenUp := slices.DeleteFunc(slices.Clone(unsubscribe), func(name string) bool { return c.asksAgain(k, l, name) })
	c.withdrawn(k, l, unsubscribe)
	for _, name := range unsubscribe {
		if _, ok := l.names[name]; !ok {
			c.fail("G10", "%s %s is dropped, and was not asked for", k.name, name)
		}
		if at, ok := c.wanted[k.name][name]; ok && c.now.Sub(at) < c.linger && !c.refused && !c.settings.Bounded(boundLinger) && !c.gone[k.name][name] && c.known[k.name].voice(l.wildcard).matches(name, surely) {
			c.fail("UP-7", "%s %s is dropped %v after its last client left", k.name, name, c.now.Sub(at))
		}
		delete(l.names, name)
		if d := c.doubts[k.name][false]; d != nil && slices.Contains(givenUp, name) {
			delete(d.asked, name) // the fault was not about what is asked for later
			delete(d.names, name)
		}
		if w, led := c.known[k.name].voice(l.wildcard).present(name); !led || !slices.ContainsFunc(w.aliases, func(alias string) bool { return !l.names[alias].IsZero() }) {
			delete(l.shown, name)
		}
		if name == wildcard {
			l.shown = nil // what it lends to names is not in the set that is asked for later
		}
	}
	// What is asked for twice was given up meanwhile, and is not unsubscribed on such a stream (UP-9).
	back := slices.DeleteFunc(slices.Clone(subscribe), func(name string) bool { return l.names[name].IsZero() })
	for _, name := range subscribe {
		if slices.Contains(unsubscribe, name) {
			c.fail("UP-8", "%s %s is dropped and asked for in one request", k.name, name)
		}
		if _, again := l.names[name]; again && !l.unasked || l.wildcard != (name == wildcard) {
			c.fail("G10", "%s %s is asked for, twice or on a stream used otherwise (WILD-13)", k.name, name)
		}
		if !c.isWanted(k, name) && !c.late && !((resumed || c.settings.Splits() && l.begun.Equal(c.now)) && c.lingers(k, name)) {
			c.fail("G10", "%s %s is asked for, and nobody wants it", k.name, name)
		}
		l.names[name] = c.askedAt(s)
		if d := c.doubts[k.name][l.wildcard]; d != nil {
			delete(d.unasked, name)
		}
		if first, again := l.again[name]; again {
			l.names[name] = first
			delete(l.again, name)
		} else {
			delete(l.erred, name) // the error was the answer to an earlier subscribe (UP-9)
			delete(l.paired, name)
			l.asked = c.events // a name that is asked for again may have been given up since (UP-19)
		}
		l.first = time.Time{}
		if name == wildcard && !resumed {
			l.doubtUpTo = c.events
		}
	}
	if !resumed {
		c.orphan(k, givenUp)
		if gone := slices.Concat(givenUp, back); len(gone) > 0 {
			c.upForgets(k, l, gone, subscribe)
		}
		return
	}
	all := c.follows(k, l)
	c.upForgets(k, all, nil, nil)
	c.upResumed(k, s, all, req.GetInitialResourceVersions())
	l.doubtUpTo, l.shown, l.resumed = all.doubtUpTo, all.shown, all.resumed
}

// asksAgain reports whether a name is given up only to be asked for again with the next request: it is
// wanted and has no copy (UP-19). What is known of it stays.
func (c *Checker) asksAgain(k kind, l *relayLane, name string) bool {
	known := c.known[k.name]
	wanted := slices.ContainsFunc(c.interests(k), func(i *Interest) bool { return i.Names[name] })
	// Where only one name of a type lingers, it may linger no longer, and is then asked for as if for the first time.
	pairs := wanted || !c.evicts
	lent := known.byName.words[name].silent && known.byWildcard.matched(name) // silence outweighs no copy (H-40)
	if at, left := c.wanted[k.name][name]; left && c.now.Sub(at) < c.linger && (lent || !known.byName.denied(name)) {
		wanted = true // it lingers
	}
	_, said := known.byName.words[name]
	if l.wildcard || !wanted || known.byName.matches(name, surely) || l.erred[name] && !said { // an error is an answer (MISS-3)
		return false
	}
	l.again[name], l.paired[name], l.before[name] = l.names[name], pairs, l.asked
	return true
}

// upJudged judges an ACK or NACK: there is exactly one for each response, and it changes no subscription.
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

// isWanted reports whether some client wants a name now, or did not long ago (UP-7).
func (c *Checker) isWanted(k kind, name string) bool {
	if at, ok := c.wanted[k.name][name]; ok && c.now.Sub(at) <= c.linger+time.Second {
		return true
	}
	return slices.ContainsFunc(c.interests(k), func(i *Interest) bool {
		return i.Names[name] || name == wildcard && i.Wildcard
	})
}

// lingers reports whether a name may linger still: when a stream last worked for certain, it had not
// lingered for long enough. Until another one works, lingering may go on.
func (c *Checker) lingers(k kind, name string) bool {
	at, ok := c.wanted[k.name][name]
	return ok && (!at.Add(c.linger+time.Second).Before(c.surely) || c.now.Sub(c.back) <= time.Second)
}

// silentWorks is how long a stream may say nothing before it has been checked: a third of the time
// that an answer may take, and a second (MISS-3, ERR-1).
const silentWorks = 6 * time.Second

// works notes that a stream works. surely: it has answered, or was silent for so long that it was
// checked. After a failure, that another stream is open proves nothing (ERR-1).
func (c *Checker) works(surely bool) {
	if surely {
		c.surely = c.now
	}
	if c.now.Sub(c.proven) > time.Second {
		c.back = c.now
	}
	c.proven = c.now
}

// lapsed reports whether the relay may have forgotten the wildcard's set: no client wants the wildcard,
// and no stream carries it, or not for much longer.
func (c *Checker) lapsed(k kind) bool {
	if slices.ContainsFunc(c.interests(k), func(i *Interest) bool { return i.Wildcard }) {
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
