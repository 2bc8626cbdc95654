package twin

import (
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
)

// clientState is one client, as the messages make it.
type clientState struct {
	sotw   bool
	ttl    bool // it knows TTLs
	leaves bool // it may be sent what waits just before the relay ends its stream (ERR-7)
	open   bool
	topics map[string]*topic // by kind
	hold   hold
	going  going
}

// topic is what a client has asked for and was sent, of one type.
type topic struct {
	// holds is what the client has. It outlives streams.
	holds map[string]held

	// These are of the present stream.
	sotw     bool
	interest Interest
	last     map[string]sent   // what was last sent of a resource, or what the client came with (G5)
	seen     map[string]string // labels, of the same (G2)
	asked    map[string]int    // names that await an answer, with the event
	brought  map[string]bool   // resources that the client came with, and of which it was sent nothing yet
	answered bool              // it was sent something since it asked for the wildcard
	rejected bool              // anything on this stream
	unacked  []string
	// Of a response that was split (DOWN-DELTA-18), whose parts count as one: how many follow, and what those before were.
	parts         int
	answers, adds bool
}

type held struct {
	label, version string
	aliases        []string
	ends           time.Time // as it was told; zero: never
	at             int       // the event with which it was sent
}

// sent is a version, and the event with which it was sent.
type sent struct {
	version string
	at      int
}

func (t *topic) begin() {
	t.interest, t.last, t.seen = newInterest(), map[string]sent{}, map[string]string{}
	t.asked, t.brought, t.answered = map[string]int{}, map[string]bool{}, false
	t.unacked, t.rejected, t.parts = nil, false, 0
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

func (c *Checker) clientOpened(id int, sotw, ttl, grpc bool) {
	cl := c.clients[id]
	if cl == nil {
		cl = &clientState{topics: map[string]*topic{}}
		c.clients[id] = cl
	}
	cl.open, cl.sotw, cl.ttl, cl.leaves, cl.hold = true, sotw, ttl, sotw && grpc, hold{}
	for _, t := range cl.topics {
		t.begin()
	}
}

func (c *Checker) clientClosed(id int) {
	for _, t := range c.clients[id].topics {
		t.begin()
	}
	c.clients[id].open = false
}

// request is what requests of both variants have in common.
type request interface {
	GetTypeUrl() string
	GetResponseNonce() string
	GetErrorDetail() *statuspb.Status
}

// requested takes in what requests of both variants have in common.
func (c *Checker) requested(id int, req request) (cl *clientState, k kind, t *topic) {
	cl = c.clients[id]
	k = kindOf(req.GetTypeUrl())
	t = cl.topic(k.name)
	if i := slices.Index(t.unacked, req.GetResponseNonce()); i >= 0 {
		settled := t.unacked[:i+1]
		cl.hold.changing = slices.DeleteFunc(cl.hold.changing, func(nonce string) bool { return k.name == "CDS" && slices.Contains(settled, nonce) })
		t.unacked = t.unacked[i+1:]
		t.rejected = t.rejected || req.GetErrorDetail() != nil
	}
	t.sotw = cl.sotw
	c.event()
	return cl, k, t
}

// brings notes what a client comes with. versions: SotW clients do not say them.
func (c *Checker) brings(cl *clientState, k kind, t *topic, versions map[string]string) {
	for name, h := range t.holds {
		t.brought[name] = true
		if h.label != foreign {
			t.seen[name] = h.label
		}
		if version := versions[name]; version != "" && !cl.ttl {
			t.last[name] = sent{version, c.events} // DOWN-DELTA-8
		}
	}
	cl.hold.brought = cl.hold.brought || k.name == "CDS" && len(t.holds) > 0
}

// clientAsked takes in a Delta client's request.
func (c *Checker) clientAsked(id int, req *discovery.DeltaDiscoveryRequest) {
	cl, k, t := c.requested(id, req)
	first, before := t.interest.fresh, t.interest.clone()
	subscribe, unsubscribe := req.GetResourceNamesSubscribe(), req.GetResourceNamesUnsubscribe()
	t.interest.Delta(k, subscribe, unsubscribe)
	if first {
		c.brings(cl, k, t, req.GetInitialResourceVersions())
	}
	for _, name := range subscribe {
		t.asks(name, c.events, first)
		t.answered = t.answered && name != wildcard
	}
	if first && t.interest.Wildcard {
		t.asks(wildcard, c.events, true)
	}
	for _, name := range unsubscribe {
		delete(t.asked, name)
		t.pardon(name)
		if h := t.holds[name]; t.brought[name] && !t.interest.Covers(name, h.aliases) {
			delete(t.holds, name)
			delete(t.brought, name)
		}
		if t.interest.Wildcard && name != wildcard {
			t.asked[name] = c.events // WILD-8
		}
	}
	c.reshaped(k, t, before, first)
}

// clientAskedSotW takes in a SotW client's request.
func (c *Checker) clientAskedSotW(id int, req *discovery.DiscoveryRequest) {
	cl, k, t := c.requested(id, req)
	first, before := t.interest.fresh, t.interest.clone()
	t.interest.Replace(k, req.GetResourceNames())
	t.interest.bare = true
	if t.interest.Empty() {
		clear(t.holds) // no response will say that what it came with is gone
	}
	if first && req.GetVersionInfo() != "" {
		c.brings(cl, k, t, nil)
	}
	for name := range t.interest.Names {
		if !before.Names[name] {
			t.asks(name, c.events, first)
		}
	}
	dropped := false
	for name := range before.Names {
		if !t.interest.Names[name] {
			dropped = true
			delete(t.asked, name)
			t.pardon(name)
		}
	}
	if t.interest.Wildcard && (!before.Wildcard || dropped) {
		t.asks(wildcard, c.events, first)
	}
	t.answered = t.answered && before.Wildcard
	c.reshaped(k, t, before, first)
}

// asks notes that a client asks for a name: it awaits an answer, and may be sent again what that leads to, but not
// because of its first request (DOWN-DELTA-7, -8).
func (t *topic) asks(name string, at int, first bool) {
	t.asked[name] = at
	if !first {
		t.pardon(name)
	}
}

// pardon notes that a client may be sent again what a name leads to.
func (t *topic) pardon(name string) {
	if name == wildcard {
		clear(t.last)
		return
	}
	for _, other := range leading(name) {
		delete(t.last, other)
	}
}

// reshaped notes that a client's interest may have changed. The client drops what it no longer wants, except what it
// came with: names that are new begin with nothing.
func (c *Checker) reshaped(k kind, t *topic, before Interest, first bool) {
	if first || before.same(&t.interest) {
		return
	}
	clear(t.seen)
	kept, whole := t.interest.clone(), t.sotw && k.full
	for name := range t.interest.Names {
		if !before.Names[name] {
			delete(kept.Names, name)
		}
	}
	for name, h := range t.holds {
		member := whole && before.Wildcard && t.interest.Names[name] // no set has lacked it (DOWN-SOTW-12)
		if before.Covers(name, h.aliases) && !kept.Covers(name, h.aliases) && !member {
			delete(t.holds, name)
			delete(t.brought, name)
			delete(t.last, name)
		}
	}
}
