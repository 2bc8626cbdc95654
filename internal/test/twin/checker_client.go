package twin

import (
	"maps"
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
)

// clientState is one client, as the messages make it.
type clientState struct {
	sotw   bool
	ttl    bool // it knows TTLs
	leaves bool // the end of its stream tells it of an outage, whatever the stream has carried (ERR-7)
	open   bool
	topics map[string]*topic // by kind
	nonces map[string]bool   // ever seen on the stream
	// carried: the stream has carried a resource.
	carried bool
	// warm are endpoints that the client must be sent, because their cluster was sent (ORDER-4).
	warm map[string]bool
	hold hold
	// going is what the client was sent in one go (ORDER-2).
	going going
}

// topic is what a client has asked for and was sent, of one type.
type topic struct {
	// holds is what the client has. It outlives streams.
	holds map[string]held

	// These are of the present stream.
	sotw     bool
	interest Interest
	halves   map[string]bool            // names that were given up while an alias of their resource is still wanted
	last     map[string]string          // the version that was last sent of a name; "": that it is gone
	seen     map[string]seen            // what was last sent of a name (G2)
	owed     map[string]bool            // names of which the client may be sent again what it has
	asked    map[string]bool            // names that await an answer
	left     map[string]bool            // names that were given up under the wildcard, and are to be answered once more (WILD-8)
	brought  map[string]bool            // names that the client came with (DOWN-DELTA-10)
	later    map[string]bool            // names asked for after the first request (MISS-4)
	met      map[string]bool            // the names in brought of which the relay had a copy then, or since
	led      map[string]bool            // the names in brought whose copy is what the client came with, and what one of its names led to
	renamed  map[string]string          // SotW: labels of what it has dropped, which the relay may not know: it asks for it by another name (DOWN-SOTW-7), or came with the version of a set that had it
	unclear  map[string]bool            // names of which the client may have a copy or not, since it has dropped one by itself
	failures map[string]bool            // names whose error it must be sent (ERR-9)
	failed   map[string]int32           // names whose error it was sent, with the code
	errors   map[string]string          // names whose error it was sent, with its text
	over     map[string]bool            // names whose error is over with the response that is under way, or was the last
	tooLarge map[string]map[string]bool // labels of contents of which it was told that they are too large, by name (ERR-13)
	whole    bool                       // the wildcard awaits its answer
	rest     bool                       // the wildcard was asked for again, and members of its answer wait for clusters (ORDER-3)
	opening  bool                       // the same, and nothing may precede that answer (DOWN-DELTA-13)
	answered bool                       // the wildcard was answered since it was asked for, as far as the judge knows
	returned bool                       // SotW: the client came with something when it asked for the wildcard
	reshaped bool                       // the interest has changed since the last response
	unacked  []string
	since    time.Time       // when changes began to wait for an ACK
	owing    time.Time       // since when ACKs are owed, without a moment in which none was
	nonce    string          // of the last response
	count    int             // of responses, each of whose parts counts as the same one
	numbers  map[string]int  // of responses, by nonce
	parts    parts           // of the response that is under way, or was the last
	versions map[string]bool // SotW: those of responses
	view     string          // last full-state response
}

type seen struct {
	label   string
	at      int // when it was said
	aliases []string
}

type held struct {
	label, version string
	aliases        []string
	ends           time.Time // as it was told
	since          int       // the event since which it had been said when it was sent last
	// nonce is that of the last response that carried it, which the client has rejected or not.
	nonce    string
	rejected bool
}

func (t *topic) begin() {
	t.interest, t.last, t.seen = newInterest(), map[string]string{}, map[string]seen{}
	t.owed, t.asked, t.whole, t.rest, t.opening, t.returned = map[string]bool{}, map[string]bool{}, false, false, false, false
	t.unclear, t.renamed = map[string]bool{}, map[string]string{}
	t.failures, t.failed, t.errors = map[string]bool{}, map[string]int32{}, map[string]string{}
	t.over, t.tooLarge = map[string]bool{}, map[string]map[string]bool{}
	t.halves = map[string]bool{}
	t.later, t.met, t.led = map[string]bool{}, map[string]bool{}, map[string]bool{}
	t.parts, t.nonce, t.count, t.numbers, t.versions = parts{}, "", 0, map[string]int{}, map[string]bool{}
	t.left, t.brought, t.unacked, t.view = map[string]bool{}, map[string]bool{}, nil, ""
}

func (c *Checker) clientOpened(id int, sotw, ttl, grpc bool) {
	cl := c.clients[id]
	if cl == nil {
		cl = &clientState{topics: map[string]*topic{}}
		c.clients[id] = cl
	}
	cl.ttl, cl.leaves = ttl, sotw && grpc
	cl.carried = false
	cl.open, cl.sotw, cl.nonces, cl.warm, cl.hold = true, sotw, map[string]bool{}, map[string]bool{}, hold{}
	for _, t := range cl.topics {
		t.begin()
	}
}

// carries notes how many resources a response has.
func (cl *clientState) carries(resources int) { cl.carried = cl.carried || resources > 0 }

func (c *Checker) clientClosed(id int) {
	for kind, t := range c.clients[id].topics {
		k, _ := named(kind)
		union := Union(c.interests(k))
		t.begin()
		c.interestChanged(k, union)
	}
	c.clients[id].open = false
}

// forgotten notes that a client will never come back.
func (c *Checker) forgotten(id int) { delete(c.clients, id) }

// interestChanged notes what some client begins to want, and what no client wants any more.
// before is what all clients wanted until now.
func (c *Checker) interestChanged(k kind, before []string) {
	c.events++
	after := Union(c.interests(k))
	for _, name := range before {
		if _, still := slices.BinarySearch(after, name); !still {
			going := c.gone[k.name][name] && c.now.Sub(c.wanted[k.name][name]) < time.Second // or gone already
			c.left[k.name][name] = c.events
			c.wanted[k.name][name], c.gone[k.name][name] = c.now, going || !c.known[k.name].byName.matches(name, surely)
		}
	}
	if len(before) == 0 {
		c.startsOver(k)
	}
	var again []string
	for _, name := range after {
		c.known[k.name].byName.recall(name)
		if kept := c.loaded[k.name][name] && c.now.Sub(c.loadedAt) < c.linger; !kept && !contains(before, name) {
			c.unanswered(k, name)
			c.asksFirst(k, name)
			if name == wildcard {
				c.askedBefore[k.name] = c.wildcardAsked(k)
			}
			c.since[k.name][name] = c.events
			c.undoubts(k, name)
			again = append(again, name)
		}
	}
	c.renews(k, again)
}

// passes notes that a client asks for a name and gives it up in one request. before is what all clients wanted:
// if nobody wanted the name, the relay may have forgotten what it led to, and then nothing of that lingers (UP-7).
func (c *Checker) passes(k kind, name string, before []string) {
	c.known[k.name].byName.recall(name)
	if !contains(before, name) {
		c.renews(k, []string{name})
	}
	c.wanted[k.name][name] = c.now
}

// asksFirst notes that the relay asks for a name as if for the first time: it gave the name up when nobody wanted it,
// since others lingered. So a removal is an answer to it (UP-19).
func (c *Checker) asksFirst(k kind, name string) {
	for _, s := range c.streams {
		if l := s.lanes[k.name]; l != nil && c.evicts {
			delete(l.again, name)
		}
	}
}

// unanswered notes that the relay may have forgotten that a name leads to nothing, if no stream asks for it
// when a client begins to want it: an absent name does not outlive its last client (UP-7), and a resource
// that loses it as an alias while nobody wants it is no answer.
func (c *Checker) unanswered(k kind, name string) {
	if v := c.known[k.name].byName; v.denied(name) && !c.carries(k, name) {
		w := v.words[name]
		w.unsure = true
		v.words[name] = w
	}
}

// contains is for names in order.
func contains(names []string, name string) bool {
	_, found := slices.BinarySearch(names, name)
	return found
}

func (cl *clientState) topic(kind string) *topic {
	t := cl.topics[kind]
	if t == nil {
		t = &topic{holds: map[string]held{}}
		t.begin()
		cl.topics[kind] = t
	}
	return t
}

// requested takes in what requests of both variants have in common.
func (c *Checker) requested(id int, req interface {
	GetTypeUrl() string
	GetResponseNonce() string
	GetErrorDetail() *statuspb.Status
}) (cl *clientState, k kind, t *topic) {
	cl = c.clients[id]
	k, _ = named(req.GetTypeUrl())
	t = cl.topic(k.name)
	if t.interest.fresh {
		c.mayAwait(k, cl)
		// No response of this stream has carried what it came with.
		for name, h := range t.holds {
			h.nonce, h.rejected = "", false
			t.holds[name] = h
		}
	}
	c.judged(cl, k, t, req.GetResponseNonce(), req.GetErrorDetail() != nil)
	t.sotw = cl.sotw
	return cl, k, t
}

// clientAsked takes in a Delta client's request.
func (c *Checker) clientAsked(id int, req *discovery.DeltaDiscoveryRequest) {
	cl, k, t := c.requested(id, req)
	first, before, union := t.interest.fresh, t.interest.clone(), Union(c.interests(k))
	subscribe, unsubscribe := req.GetResourceNamesSubscribe(), req.GetResourceNamesUnsubscribe()
	t.interest.Delta(k, subscribe, unsubscribe)
	if first && k.name == "CDS" && len(req.GetInitialResourceVersions()) > 0 {
		cl.hold.returned = c.now
	}
	if first {
		for name, version := range req.GetInitialResourceVersions() {
			t.last[name], t.brought[name] = version, true // DOWN-DELTA-8
			t.met[name] = c.known[k.name].has(name)
			c.leads(k, t, name)
		}
	}
	for _, name := range subscribe {
		if name != wildcard {
			t.asked[name] = !first || len(t.brought) == 0 // DOWN-DELTA-7, -8
			t.later[name] = !first
			c.owe(k, t, name, first)
		}
	}
	for _, name := range unsubscribe {
		t.recovers(name, nil)
		if t.brought[name] && !t.interest.Wildcard && !c.known[k.name].leads(name, &t.interest) {
			t.unclear[name] = true // an alias may lead there: the relay does not know
			delete(t.holds, name)  // DOWN-DELTA-16
			delete(t.brought, name)
			delete(t.last, name)
		}
		if !t.left[name] { // else it must still be answered as a member of the wildcard's set, or as gone (WILD-8)
			delete(t.asked, name)
		}
		both := slices.Contains(subscribe, name) || name == wildcard && first && k.empty && len(subscribe) == 0 // row e
		if name != wildcard && t.interest.Wildcard && (both || before.Names[name]) {
			t.asked[name], t.left[name] = true, true
			c.owe(k, t, name, false)
			for _, other := range aliased(name) {
				t.left[other] = t.left[other] || t.owed[other] && (answers(other, t.holds[other].aliases, name) || c.known[k.name].listed(other, name))
			}
		}
		if both {
			c.passes(k, name, union)
		}
	}
	if t.interest.Wildcard && (first || slices.Contains(subscribe, wildcard)) {
		t.whole, t.opening, t.answered = true, t.opening || first, false
		c.owe(k, t, wildcard, first)
	}
	c.interestChanged(k, union)
	c.comesLate(k, t, subscribe)
	c.reshaped(k, t, before, first)
}

// clientAskedSotW takes in a SotW client's request.
func (c *Checker) clientAskedSotW(id int, req *discovery.DiscoveryRequest) {
	cl, k, t := c.requested(id, req)
	first, before, union := t.interest.fresh, t.interest.clone(), Union(c.interests(k))
	t.interest.Replace(k, req.GetResourceNames())
	if t.interest.Empty() {
		clear(t.holds) // no response will say that what it came with is gone
	}
	if first && req.GetVersionInfo() != "" {
		if k.name == "CDS" {
			cl.hold.returned = c.now
		}
		for name := range t.holds {
			t.brought[name] = true
			t.met[name] = c.known[k.name].has(name)
		}
	}
	for name := range t.interest.Names {
		if !before.Names[name] {
			t.asked[name] = true
			t.later[name] = !first
			c.owe(k, t, name, first)
		}
	}
	dropped := false
	for name := range before.Names {
		if !t.interest.Names[name] {
			t.recovers(name, nil)
		}
		dropped = dropped || !t.interest.Names[name]
	}
	if t.interest.Wildcard && (!before.Wildcard || dropped) {
		if !before.Wildcard {
			t.whole, t.answered, t.returned = true, false, first && req.GetVersionInfo() != ""
		}
		t.asked[wildcard] = true // what it had by name may not be what the wildcard has
		c.owe(k, t, wildcard, first)
	}
	c.interestChanged(k, union)
	c.comesLate(k, t, slices.DeleteFunc(slices.Clone(req.GetResourceNames()), func(name string) bool { return before.Names[name] }))
	c.reshaped(k, t, before, first)
}

// judged notes that a client has acknowledged or rejected a response, and with it those before.
func (c *Checker) judged(cl *clientState, k kind, t *topic, nonce string, rejects bool) {
	if i := slices.Index(t.unacked, nonce); i >= 0 {
		if rejects {
			t.rejects(nonce, t.unacked[i+1:])
		}
		if k.name == "CDS" {
			cl.hold.judged(t.unacked[:i+1], t.since)
		}
		t.unacked = t.unacked[i+1:]
	}
}

// rejects notes that a client has rejected a response. Who rejects a part has rejected the parts before it, too.
func (t *topic) rejects(nonce string, later []string) {
	for name, h := range t.holds {
		h.rejected = h.rejected || h.nonce != "" && t.numbers[h.nonce] == t.numbers[nonce] && !slices.Contains(later, h.nonce)
		t.holds[name] = h
	}
}

func (i *Interest) clone() Interest {
	c := *i
	c.Names = maps.Clone(i.Names)
	return c
}

// owe notes that all that a name leads to may be sent again. With a first request nothing is sent again.
func (c *Checker) owe(k kind, t *topic, asked string, first bool) {
	if first {
		return
	}
	t.owed[asked] = true
	for _, v := range c.known[k.name].voices() {
		if asked != wildcard {
			for _, name := range aliased(asked) {
				if w, ok := v.words[name]; ok && answers(name, w.aliases, asked) {
					t.owed[name] = true
				}
			}
			continue
		}
		for name := range v.words {
			t.owed[name] = true
		}
	}
	if asked == wildcard {
		for name := range t.last {
			t.owed[name] = true
		}
	}
}

// reshaped notes that a client's interest has changed. The client drops what it no longer wants, except
// what it came with, which the relay must remove (DOWN-DELTA-11).
func (c *Checker) reshaped(k kind, t *topic, before Interest, first bool) {
	if !t.interest.Wildcard {
		t.whole, t.rest, t.opening = false, false, false
	}
	if first || before.same(&t.interest) {
		return
	}
	clear(t.seen)
	t.reshaped = true
	still := t.interest.clone()
	maps.DeleteFunc(still.Names, func(name string, _ bool) bool { return !before.Names[name] }) // new names begin with nothing
	for name, h := range t.holds {
		if t.sotw && k.full && before.Wildcard && t.interest.Names[name] {
			continue // it asks for a member by name, and no set has lacked it
		}
		if t.sotw && before.Wildcard && !still.Wildcard && c.mayLead(k, &still, name, h) {
			t.owed[name] = true
			continue // an alias leads there, unless the relay has forgotten it
		}
		// It may have dropped what an alias was given up for, or does not lead to any more, or led to before it came back, and the set need not wait for its name (DOWN-SOTW-7).
		// A SotW client that gives the wildcard up drops the members that no name of its leads to yet, whatever aliases they list.
		renamed := t.sotw && k.full && !before.Wildcard && t.interest.Names[name] && (!still.Named(name, h.aliases) || !before.Names[name] && (t.brought[name] || c.denies(k, &still, name, h)))
		if before.Covers(name, h.aliases) && (renamed || !still.Covers(name, h.aliases) || t.sotw && (k.full && before.Names[name] || !still.Wildcard && before.Wildcard) && c.denies(k, &still, name, h)) {
			t.unclear[name] = t.brought[name] || t.left[name] || t.interest.Covers(name, h.aliases)
			if delete(t.holds, name); renamed {
				t.renamed[name] = h.label
			}
			delete(t.last, name)
		}
		if before.Names[name] && !t.interest.Names[name] && t.interest.Named(name, h.aliases) {
			t.halves[name] = true
		}
	}
}

// mayLead reports whether aliases that a client asks for lead to what it holds, if the relay has that still.
func (c *Checker) mayLead(k kind, i *Interest, name string, h held) bool {
	w, present := c.known[k.name].byName.present(name)
	return present && w.unsure && i.Named(name, slices.DeleteFunc(slices.Clone(h.aliases), func(alias string) bool { return !slices.Contains(w.aliases, alias) }))
}

// denies reports whether a client drops what it gives up by its name, though that lists aliases that
// the client asks for: none of these leads there, not even to what the wildcard lends.
func (c *Checker) denies(k kind, i *Interest, name string, h held) bool {
	v, lent := c.known[k.name].byName, c.known[k.name].byWildcard
	return !i.Covers(name, nil) && !slices.ContainsFunc(h.aliases, func(alias string) bool {
		leads := func(w word) bool { return w.present && slices.Contains(w.aliases, alias) }
		w := v.words[name]
		return i.Names[alias] && (leads(w) && !w.unsure || !v.answered(alias) && leads(lent.words[name]))
	})
}

func (i *Interest) same(o *Interest) bool {
	return i.Wildcard == o.Wildcard && maps.Equal(i.Names, o.Names)
}
