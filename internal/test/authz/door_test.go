package authz_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/relay"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// world is a control plane that has resources, one group that all clients share, and rules.
type world struct {
	t       *testing.T
	seed    uint64
	r       *rand.Rand
	config  *config.Config
	session session.Config
	hub     *fanout.Hub
	now     time.Time
	rules   []ruling
	in      *relay.Rules
	has     map[cache.TypeURL]map[string]int // versions of what exists
	clients []*client
	count   int // responses' resources, errors and removals that were judged
}

// client is a stream, and what it has asked for.
type client struct {
	*session.Session
	world    *world
	identity string
	node     string
	kind     session.Stream
	whole    bool // a unary call
	asked    map[cache.TypeURL]map[string]bool
	had      map[cache.TypeURL]map[string]bool // what it brought, and was sent
	could    map[cache.TypeURL]bool            // it might read all of the type once
	first    map[cache.TypeURL]bool
	log      []string // what it has said and heard, for a failure
	nonce    map[cache.TypeURL]string
}

// Key and Join are a relay's, with one group for all.
func (w *world) Key(c session.Peer, node *core.Node) (string, *session.End) {
	return w.in.Key(relay.NewGrouping(w.config), c, node)
}

func (w *world) Join(c session.Peer, node *core.Node, t cache.TypeURL) (session.Membership, *session.End) {
	_, m, end := w.in.Reads(c, node, t)
	m.Hub, m.Leave = w.hub, func() {}
	return m, end
}

func newWorld(t *testing.T, seed uint64) *world {
	c, err := config.Load("", nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 1)), config: c, session: relay.DownstreamConfig(c), //nolint:gosec // a game
		now: time.Unix(1e9, 0), has: make(map[cache.TypeURL]map[string]int),
	}
	hub := relay.HubConfig(c)
	hub.Linger = 0 // so that what is asked upstream is what somebody wants now
	w.hub = fanout.NewHub(hub)
	for _, t := range types {
		w.has[t] = make(map[string]int)
	}
	w.legislate()
	return w
}

// legislate puts other rules in force.
func (w *world) legislate() {
	for _, c := range w.clients {
		for _, t := range types {
			c.could[t] = c.could[t] || c.may(t, "*")
		}
	}
	w.rules = someRules(w.r)
	in, err := relay.ParseRules("rules.yaml", file(w.rules), w.config)
	if err != nil {
		w.t.Fatalf("%v\n%s", err, file(w.rules))
	}
	w.in = in
	for _, c := range slices.Clone(w.clients) {
		c.notes("rules change")
		if end := c.Rejudge(w.now); end != nil {
			c.leave()
			continue
		}
		if !admitted(w.rules, c.identity, c.node) && len(c.first) > 0 {
			c.fails("it stays")
		}
	}
}

func (w *world) come() {
	c := &client{
		world: w, identity: pick(w.r, who), node: pick(w.r, ids), kind: session.Stream{Delta: w.r.IntN(2) == 0},
		asked: make(map[cache.TypeURL]map[string]bool), had: make(map[cache.TypeURL]map[string]bool),
		could: make(map[cache.TypeURL]bool), first: make(map[cache.TypeURL]bool), nonce: make(map[cache.TypeURL]string),
	}
	if w.r.IntN(4) == 0 {
		c.kind.Type = pick(w.r, types)
		c.whole = !c.kind.Delta && w.r.IntN(2) == 0
	}
	peer := session.Peer{Identity: c.identity, Principal: c.identity}
	c.Session = session.New(&w.session, c.kind, peer, w, session.NewClusterDeliveries(), func() {})
	w.clients = append(w.clients, c)
}

func (c *client) leave() {
	c.Close(c.world.now)
	c.world.clients = slices.DeleteFunc(c.world.clients, func(o *client) bool { return o == c })
}

// asks sends a random request.
func (c *client) asks() {
	w := c.world
	t := pick(w.r, types)
	if c.kind.Type != "" {
		t = c.kind.Type
	}
	if c.whole && len(c.first) > 0 {
		return
	}
	if c.asked[t] == nil {
		c.asked[t], c.had[t] = make(map[string]bool), make(map[string]bool)
	}
	var ask, give []string
	for range w.r.IntN(4) {
		ask = append(ask, pick(w.r, names))
	}
	if w.r.IntN(6) == 0 {
		ask = append(ask, "*")
	}
	if len(ask) == 0 && !c.first[t] {
		c.asked[t]["*"] = true // for some types
	}
	var end *session.End
	node := &core.Node{Id: c.node}
	if c.kind.Delta {
		for range w.r.IntN(2) {
			give = append(give, pick(w.r, names))
		}
		req := &discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: string(t), ResourceNamesSubscribe: ask, ResourceNamesUnsubscribe: give, ResponseNonce: c.nonce[t]}
		if !c.first[t] && w.r.IntN(2) == 0 {
			req.InitialResourceVersions = make(map[string]string)
			for range 1 + w.r.IntN(3) {
				name := pick(w.r, names)
				req.InitialResourceVersions[name] = pick(w.r, []string{w.resource(t, name).Version, "other"})
				c.had[t][name] = true
			}
		}
		_, end = c.DeltaRequest(req, w.now)
	} else {
		req := &discovery.DiscoveryRequest{Node: node, TypeUrl: string(t), ResourceNames: ask, ResponseNonce: c.nonce[t]}
		if !c.first[t] && w.r.IntN(3) == 0 {
			req.VersionInfo = "7"
		}
		_, end = c.SotWRequest(req, w.now)
	}
	c.notes("asks %s for %v, gives up %v", t.Short(), ask, give)
	for _, name := range ask {
		c.asked[t][name] = true
	}
	c.first[t] = true
	c.Refusals()
	if end != nil {
		if end.Reason != session.Forbidden {
			w.t.Fatalf("%v", end)
		}
		served := admitted(w.rules, c.identity, c.node) && (c.kind.Type == "" || ruled(w.rules, c.identity, c.node, func(rd *reading, _ map[string]string) bool { return slices.Contains(rd.types, t) }))
		if served {
			c.fails("it is refused %s: %v", t, end)
		}
		c.leave()
		return
	}
	if !admitted(w.rules, c.identity, c.node) {
		c.fails("it is served")
	}
}

func (w *world) resource(t cache.TypeURL, name string) *cache.Resource {
	body := fmt.Sprintf("%s %d", name, w.has[t][name])
	r := &discovery.Resource{Name: name, Resource: &anypb.Any{TypeUrl: string(t), Value: []byte(body)}}
	if name == "shared" {
		r.Aliases = []string{"ROOTCA", "web"}
	}
	return cache.NewResource(t, r, cache.Fingerprint{})
}

// upstream changes something, or answers what it is asked.
func (w *world) upstream() {
	t := pick(w.r, types)
	name := pick(w.r, names)
	for _, lane := range []fanout.Lane{{Type: t}, {Type: t, Wildcard: true}} {
		u := &cache.Update{At: w.now}
		if w.has[t][name]++; w.r.IntN(4) == 0 {
			delete(w.has[t], name)
			u.Removed = []string{name}
		} else {
			u.Set = []cache.Received{{Resource: w.resource(t, name)}}
		}
		w.hub.Apply(lane, u)
	}
}

func (w *world) answers() {
	changes, _ := w.hub.Changes(w.now, func(fanout.Lane) (c fanout.Carrier, carried bool) { return c, false })
	for lane, interest := range changes {
		u := &cache.Update{At: w.now}
		for _, name := range interest.Want {
			w.wanted(lane.Type, name)
			if lane.Wildcard {
				u.Synced = true
				for name := range w.has[lane.Type] {
					u.Set = append(u.Set, cache.Received{Resource: w.resource(lane.Type, name)})
				}
			} else if w.has[lane.Type][name] > 0 {
				u.Set = append(u.Set, cache.Received{Resource: w.resource(lane.Type, name)})
			} else {
				u.Removed = append(u.Removed, name)
			}
		}
		w.hub.On(lane).Asked(interest.Want)
		w.hub.Apply(lane, u)
	}
}

// wanted fails if upstream is asked for what no client may read that has asked for it.
func (w *world) wanted(t cache.TypeURL, name string) {
	w.count++
	if !slices.ContainsFunc(w.clients, func(c *client) bool { return c.may(t, name) }) {
		var said []string
		for _, c := range w.clients {
			said = append(said, fmt.Sprintf("%s as %s, %+v, unary: %v", c.identity, c.node, c.kind, c.whole))
			said = append(said, c.log...)
		}
		w.t.Fatalf("seed %d: upstream is asked for %s %q\n%s\n%s", w.seed, t, name, strings.Join(said, "\n"), file(w.rules))
	}
}

// may reports whether the client has asked for a name and may read it.
func (c *client) may(t cache.TypeURL, name string) bool {
	return c.asked[t][name] && allowed(c.world.rules, c.identity, c.node, t, name)
}

// hears judges what the client is sent.
func (c *client) hears() {
	w := c.world
	for {
		next := c.Next
		if c.whole {
			if len(c.first) == 0 {
				return
			}
			next = c.Whole
		}
		r, end := next(w.now)
		if broken := c.Check(); len(broken) > 0 {
			c.fails("%v", broken)
		}
		if end != nil {
			c.leave()
			return
		}
		if r == nil {
			return
		}
		c.judges(r)
		if c.whole {
			c.leave()
			return
		}
		c.nonce[r.Type] = r.Nonce
		c.acks(r)
	}
}

func (c *client) acks(r *session.Response) {
	if c.kind.Delta {
		_, _ = c.DeltaRequest(&discovery.DeltaDiscoveryRequest{TypeUrl: string(r.Type), ResponseNonce: r.Nonce}, c.world.now)
	}
	c.world.now = c.world.now.Add(time.Minute) // what is not acknowledged holds nothing back
}

// notes keeps what happens to the client.
func (c *client) notes(format string, args ...any) {
	c.log = append(c.log, fmt.Sprintf(format, args...))
}

// fails ends the test.
func (c *client) fails(format string, args ...any) {
	c.world.t.Fatalf("seed %d: %s as %s, %+v: %s\n%s\n%s", c.world.seed, c.identity, c.node, c.kind, fmt.Sprintf(format, args...), strings.Join(c.log, "\n"), file(c.world.rules))
}

func (c *client) judges(r *session.Response) {
	w, t := c.world, r.Type
	var sent []string
	for _, res := range r.Resources {
		sent = append(sent, res.Name)
	}
	c.notes("is sent %s %v, without %v, errors %v", t.Short(), sent, r.Removed, r.Errors)
	for _, res := range slices.Concat(r.Resources, r.Heartbeats) {
		w.count++
		mayRead := c.may(t, "*") || c.may(t, res.Name) || slices.ContainsFunc(res.Aliases, func(a string) bool { return c.may(t, a) })
		if !mayRead {
			c.fails("it is sent %s %q", t, res.Name)
		}
		c.had[t][res.Name] = true
	}
	for _, name := range r.Removed {
		w.count++
		if !c.had[t][name] && !c.could[t] && !c.may(t, name) && !c.may(t, "*") {
			c.fails("it is told that %s %q is gone, which it may not read and never had", t, name)
		}
	}
	for _, e := range r.Errors {
		w.count++
		name := e.GetResourceName().GetName()
		const denied = 7
		if may := c.may(t, name); may == (e.GetErrorDetail().GetCode() == denied) {
			c.fails("error of %s %q: %v, may read it: %v", t, name, e.GetErrorDetail(), may)
		}
	}
}

// TestDoor plays random identities, rules, requests, updates and changes of the rules: nobody is sent, or learns of,
// what is not theirs, and upstream is asked for nothing that nobody may read. TUPLES says how many things are judged, and SEED
// where to begin.
func TestDoor(t *testing.T) {
	tuples := 30_000
	if peer.Race {
		tuples = 4_000
	}
	if n, err := strconv.Atoi(os.Getenv("TUPLES")); err == nil {
		tuples = n
	}
	first, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
	if err != nil {
		first = 1
	}
	for seed, judged := first, 0; judged < tuples; seed++ {
		w := newWorld(t, seed)
		for range 300 {
			w.step()
		}
		judged += w.count
	}
}

func (w *world) step() {
	switch n := w.r.IntN(20); {
	case n < 2 || len(w.clients) == 0:
		w.come()
	case n == 2 && len(w.clients) > 4:
		pick(w.r, w.clients).leave()
	case n < 12:
		pick(w.r, w.clients).asks()
	case n < 18:
		w.upstream()
	case n == 18:
		w.legislate()
	}
	w.answers()
	for _, c := range slices.Clone(w.clients) {
		if w.r.IntN(4) > 0 { // else it may say more before it is answered
			c.hears()
		}
	}
}
