package twin

import (
	"maps"
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/durationpb"
)

// What the control plane has said to the relay, as its responses have it.

// lane is what upstream has said of a type in answer to one kind of interest, by name or by wildcard (WILD-16).
type lane struct {
	words map[string]word
	// asked: upstream is asked for it. answered: some stream has carried a response.
	asked, answered bool
}

func newLane() *lane { return &lane{words: map[string]word{}} }

// word is what upstream said last of a name.
type word struct {
	gone    bool
	silent  bool   // upstream has said nothing else, and its silence counts
	erred   bool   // an error, and nothing since
	label   string // of what is there, and of what was before
	before  string
	version string // the control plane's
	aliases []string
	at      int       // the event with which it was said
	ends    time.Time // when it expires; zero: never
}

// there reports whether the last word is that it exists.
func (w word) there() bool { return !w.gone && w.label != "" }

// denies reports whether upstream has said that there is nothing, or its silence says so.
func (w word) denies() bool { return w.gone || w.silent }

// is reports whether a content is the last word, or was the one before.
func (w word) is(label string) bool { return w.label == label || w.before == label }

// relayStream is a stream of the relay's to a control plane.
type relayStream struct {
	plane  int
	latest time.Time // response
	lanes  map[string]*carried
}

// carried is one type on a stream.
type carried struct {
	wildcard bool // it is used for the wildcard, else for names (WILD-13)
	begun    int  // the event with which the type, or the wildcard, was asked for
	asked    map[string]*question
	shown    map[string]string // the versions with which it began
	repeats  bool              // the server has announced one of these again: it may be ignoring them (RECON-13)
	heard    bool              // anything of the type
	faulty   map[string]bool   // names that came with a fault, and have had no sound answer since
}

// question is a name that a stream asks for.
type question struct {
	since    time.Time // for the first time
	answered bool      // since it was asked for the last time
	shown    bool      // a version was shown of what it leads to
	given    bool      // it was given up
}

func (c *Checker) upOpened(id, plane int) {
	c.streams[id] = &relayStream{plane: plane, lanes: map[string]*carried{}}
	c.used[plane] = true
}

func (c *Checker) upClosed(id int) {
	c.conclude()
	if s := c.streams[id]; s != nil {
		for kind, l := range s.lanes {
			if l.wildcard {
				c.moved[kind] = c.event()
			}
		}
	}
	delete(c.streams, id)
}

// upAsked takes in a request of the relay's.
func (c *Checker) upAsked(id int, req *discovery.DeltaDiscoveryRequest) {
	k := kindOf(req.GetTypeUrl())
	s := c.streams[id]
	if s == nil || k.name == "" || req.GetResponseNonce() != "" {
		return
	}
	c.conclude()
	l, subscribe := s.lanes[k.name], req.GetResourceNamesSubscribe()
	if l == nil {
		if len(subscribe) == 0 {
			subscribe = []string{wildcard}
		}
		l = &carried{wildcard: slices.Contains(subscribe, wildcard), begun: c.event(), asked: map[string]*question{}, shown: maps.Clone(req.GetInitialResourceVersions()), faulty: map[string]bool{}}
		s.lanes[k.name] = l
		c.shows(k, s, l)
		c.endsFallbacks(k)
	}
	for _, name := range req.GetResourceNamesUnsubscribe() {
		if q := l.asked[name]; q != nil {
			q.given = true
		}
		for _, other := range leading(name) {
			if !l.asks(other, c.lanes[k.name][l.wildcard].words[other].aliases) {
				delete(l.shown, other) // what is asked for again awaits an answer
			}
		}
	}
	for _, name := range subscribe {
		if name == wildcard {
			l.begun = c.event()
		}
		q := l.asked[name]
		if q == nil {
			q = &question{since: c.askedAt(s)}
			l.asked[name] = q
		}
		q.answered, q.given = false, false
		q.shown = slices.ContainsFunc(leading(name), func(other string) bool {
			_, shown := l.shown[other]
			return shown && answers(other, c.lanes[k.name][l.wildcard].words[other].aliases, name)
		})
	}
	if l.wildcard {
		c.lanes[k.name][true].asked, c.moved[k.name] = true, c.event()
	}
}

// endsFallbacks notes that the wildcard is given up, if no stream asks for it any more: names may have resolved to what
// it had (WILD-11).
func (c *Checker) endsFallbacks(k kind) {
	for _, s := range c.streams {
		if l := s.lanes[k.name]; l != nil && l.wildcard {
			return
		}
	}
	if set := c.lanes[k.name][true]; set.asked {
		set.asked, c.moved[k.name] = false, c.event()
	}
}

// asks reports whether a stream asks for a resource.
func (l *carried) asks(name string, aliases []string) bool {
	return slices.ContainsFunc(append(slices.Clone(aliases), name), func(asked string) bool { q := l.asked[asked]; return q != nil && !q.given })
}

// shows notes the versions with which a stream begins: upstream has said these, to an earlier life of the relay maybe.
func (c *Checker) shows(k kind, s *relayStream, l *carried) {
	words := c.lanes[k.name][l.wildcard].words
	for name, version := range l.shown {
		if _, known := words[name]; !known {
			r := c.planes[s.plane].earlier(version)
			words[name] = word{label: r.Label, version: version, aliases: r.Aliases, at: l.begun - 1}
		}
	}
}

// askedAt is when the relay has written a request that is heard now: not before the control plane hung, if it
// does over gRPC.
func (c *Checker) askedAt(s *relayStream) time.Time {
	if since, hung := c.hungSince[s.plane]; hung && c.live {
		return since
	}
	return c.now
}

// upSaid takes in what is sound in a response of the control plane's.
func (c *Checker) upSaid(id int, resp *discovery.DeltaDiscoveryResponse) {
	k := kindOf(resp.GetTypeUrl())
	s := c.streams[id]
	if s == nil || s.lanes[k.name] == nil {
		return // UP-10
	}
	c.conclude() // names that were silent for long enough are absent before this response counts
	l, of := s.lanes[k.name], c.lanes[k.name][s.lanes[k.name].wildcard]
	s.latest, l.heard, of.answered = c.now, true, true
	now := c.event()
	for _, r := range resp.GetResources() {
		switch {
		case r.GetResource() != nil:
			c.says(k, l, of, r)
		case len(r.GetAliases()) == 0:
			if w, ok := of.words[r.GetName()]; ok && !w.gone && w.version == r.GetVersion() { // a heartbeat (TTL-4)
				w.ends, w.at = c.ends(r.GetTtl()), now
				c.limits(k, l.wildcard, r.GetName(), w.ends)
				of.words[r.GetName()] = w
			}
			c.spoken(k, r.GetName(), true)
		default:
			for _, alias := range r.GetAliases() {
				c.goes(k, of, alias)
				l.settle(alias)
			}
		}
	}
	for _, name := range resp.GetRemovedResources() {
		c.goes(k, of, name)
		l.settle(name)
	}
	for _, e := range resp.GetResourceErrors() {
		name := e.GetResourceName().GetName()
		c.spoken(k, name, true)
		if e.GetErrorDetail().GetCode() == notFound {
			c.goes(k, of, name)
		}
		l.settle(name) // no timer runs any more (ERR-8)
		w := of.words[name]
		w.erred = true
		of.words[name] = w
	}
}

const notFound = 5

// says takes in a resource.
func (c *Checker) says(k kind, l *carried, of *lane, r *discovery.Resource) {
	name, label := r.GetName(), c.bodies[string(r.GetResource().GetValue())].label
	before := of.words[name]
	unchanged := before.label == label && before.at < l.begun
	if shown, was := l.shown[name]; was && (shown == r.GetVersion() || unchanged) {
		l.repeats = true
	}
	w := word{label: label, before: before.label, version: r.GetVersion(), aliases: r.GetAliases(), at: c.events, ends: c.ends(r.GetTtl())}
	if before.label == label {
		w.before = before.before
	}
	of.words[name] = w
	c.limits(k, l.wildcard, name, w.ends)
	l.settle(name)
	delete(l.faulty, name)
	limited := !w.ends.IsZero() || !before.ends.IsZero()
	replaces := before.label != "" && before.label != label
	leads := slices.ContainsFunc(w.aliases, func(alias string) bool { return of.words[alias].denies() })
	ends := before.denies() || before.erred
	differs := ends || replaces || leads
	if news := differs || c.endsFallback(k, l, before, w, name); news || limited {
		c.spoken(k, name, limited)
		for _, alias := range append(slices.Clone(w.aliases), before.aliases...) {
			c.spoken(k, alias, false)
		}
	}
	for _, alias := range w.aliases {
		l.settle(alias)
		delete(of.words, alias)
	}
	for _, alias := range before.aliases {
		if !slices.Contains(w.aliases, alias) {
			c.goes(k, of, alias)
			c.unnamed[k.name][name] = c.events
		}
	}
}

// endsFallback reports whether the lane of names has its first answer since it was asked, where the wildcard's member may
// have answered the name before, and none of the aliases.
func (c *Checker) endsFallback(k kind, l *carried, before, w word, name string) bool {
	if l.wildcard || len(w.aliases) == 0 {
		return false
	}
	member := c.lanes[k.name][true].words[name].is(w.label)
	return before.label == "" || before.at < l.begun && member
}

// limits notes until when a resource is good.
func (c *Checker) limits(k kind, byWildcard bool, name string, ends time.Time) {
	if byWildcard {
		name = wildcard + name
	}
	if _, was := c.limited[k.name][name]; was || !ends.IsZero() {
		c.limited[k.name][name] = ends
	}
}

// expired reports whether what was last said to end has ended, which may be from disk, or something that may have this alias.
func (c *Checker) expired(k kind, name string) bool {
	return slices.ContainsFunc(leading(name), func(led string) bool {
		for _, ends := range []time.Time{c.limited[k.name][led], c.limited[k.name][wildcard+led]} {
			if !ends.IsZero() && !ends.Truncate(time.Millisecond).After(c.now) {
				return true
			}
		}
		return false
	})
}

// settle notes that a name has an answer.
func (l *carried) settle(name string) {
	if q := l.asked[name]; q != nil {
		q.answered = true
	}
}

// goes notes that upstream has said that a name leads to nothing, or that what it led to has expired.
func (c *Checker) goes(k kind, of *lane, name string) {
	w := of.words[name]
	for _, alias := range w.aliases {
		a := of.words[alias]
		a.gone, a.at = true, c.events
		of.words[alias], c.world[k.name][alias] = a, c.events
	}
	of.words[name] = word{gone: true, before: w.label, aliases: nil, at: c.events}
	c.world[k.name][name] = c.events
	c.spoken(k, name, true)
}

// silenced notes that upstream's silence says that a name leads to nothing.
func (c *Checker) silenced(k kind, of *lane, name string) {
	w := of.words[name]
	w.silent = true
	of.words[name], c.world[k.name][name] = w, c.event()
	c.spoken(k, name, true)
}

// spoken notes that upstream has said something of a name: clients may be sent what it leads to again. all: if it
// is an alias, or a resource that may have some, that goes for all that may share them.
func (c *Checker) spoken(k kind, name string, all bool) {
	c.said[k.name][name] = c.events
	if slices.Contains(poolAliases, name) || all && slices.Contains(poolNames, name) {
		for _, other := range poolNames {
			c.said[k.name][other] = c.events
		}
	}
}

// ends is when what comes with a TTL expires; zero: never.
func (c *Checker) ends(ttl *durationpb.Duration) time.Time {
	if ttl == nil {
		return time.Time{}
	}
	return c.now.Add(ttl.AsDuration())
}

// conclude notes what has expired (TTL-2), and what silence says by now: that a name is not there which a stream was
// asked for, and was alive (MISS-3), and that a member is gone which a wildcard's set lacks on a later stream that was
// shown no version of it (RECON-12).
func (c *Checker) conclude() {
	for _, k := range kinds {
		for _, of := range c.lanes[k.name] {
			for name, w := range of.words {
				if !w.gone && !w.ends.IsZero() && !w.ends.After(c.now) {
					c.event()
					c.goes(k, of, name)
				}
			}
		}
	}
	for _, s := range c.streams {
		for kind, l := range s.lanes {
			k, of := kindOf(kind), c.lanes[kind][l.wildcard]
			if l.wildcard {
				c.sweep(k, l, of)
				continue
			}
			for name, q := range l.asked {
				open := !q.answered && !(q.shown && !l.repeats)
				if open && !of.words[name].denies() && c.counts(s, q.since) {
					c.silenced(k, of, name)
				}
			}
		}
	}
}

// sweep notes what of a wildcard's set a stream has not said again.
func (c *Checker) sweep(k kind, l *carried, of *lane) {
	if !l.heard {
		return
	}
	for name, w := range of.words {
		vouched := l.shown[name] != "" && !l.repeats
		if !vouched && !w.denies() && w.at < l.begun {
			c.silenced(k, of, name)
		}
	}
}

// counts reports whether a stream was silent for long enough about what it was asked, and alive (MISS-3).
func (c *Checker) counts(s *relayStream, asked time.Time) bool {
	since, hung := c.hungSince[s.plane]
	alive := !hung || since.After(asked) || s.latest.After(asked)
	return alive && c.now.Sub(asked) >= missingAfter
}

// faulted notes names that came with a fault: what the relay has of them may stay (ERR-10).
func (c *Checker) faulted(id int, k kind, names []string) {
	if s := c.streams[id]; s != nil && s.lanes[k.name] != nil {
		for _, name := range names {
			s.lanes[k.name].faulty[name] = true
		}
	}
}
