package authz_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// crowd are random clients of a real relay, each with a certificate.
type crowd struct {
	*scene
	r       *rand.Rand
	rules   []ruling
	conns   map[string]*grpc.ClientConn // by identity
	callers []*caller
	fences  int
	judged  int
	// mayGoUp has what some client has asked for that it could read at the time.
	mayGoUp map[cache.TypeURL]map[string]bool
}

// caller is one of them, on one call.
type caller struct {
	*call
	crowd       *crowd
	identity    string
	node        *core.Node
	ads         bool
	asked, had  map[cache.TypeURL]map[string]bool
	first       map[cache.TypeURL]bool
	looked      int // at so many responses
	fetched     bool
	in          [][]ruling // the rules by which it was served since what was judged last
	legislation int        // how often rules have changed since it came
	log         []string
}

// certified are the identities that a certificate can have.
func certified() []string {
	return slices.DeleteFunc(slices.Clone(who), func(id string) bool { return strings.HasPrefix(id, "unix:") || id == "anonymous" })
}

// spoken are the methods that clients call for a type; "" stands for ADS.
var spoken = map[cache.TypeURL][]string{
	"":           {deltaADS, sotwADS},
	cache.Secret: ways[2:],
	cache.Cluster: {"envoy.service.cluster.v3.ClusterDiscoveryService/DeltaClusters", "envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters",
		"envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters"},
	cache.Endpoint: {"envoy.service.endpoint.v3.EndpointDiscoveryService/DeltaEndpoints", "envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints",
		"envoy.service.endpoint.v3.EndpointDiscoveryService/FetchEndpoints"},
}

func newCrowd(t *testing.T, seed uint64) *crowd {
	w := &crowd{r: rand.New(rand.NewPCG(seed, 2)), conns: make(map[string]*grpc.ClientConn), mayGoUp: make(map[cache.TypeURL]map[string]bool)} //nolint:gosec // a game
	w.rules = someRules(w.r)
	w.scene = newScene(t, file(w.rules))
	for _, identity := range certified() {
		w.conns[identity] = w.as(identity, nil)
	}
	return w
}

// change is something of the control plane's.
func (w *crowd) change() {
	t, name := pick(w.r, types), pick(w.r, names)
	if w.r.IntN(4) == 0 {
		w.plane.remove(t, name)
		return
	}
	w.plane.set(t, name, fmt.Sprintf("%s %d", name, w.r.IntN(100)), aliasesOf(name)...)
}

// aliasesOf are those that a resource has, if it exists.
func aliasesOf(name string) []string {
	if name == "shared" {
		return []string{"ROOTCA", "web"}
	}
	return nil
}

// legislate puts other rules in force. What was said by the old ones is judged before, as far as it has come.
func (w *crowd) legislate() {
	w.fence()
	w.rules = someRules(w.r)
	for _, c := range slices.Clone(w.callers) {
		c.notes("rules change to\n%s", file(w.rules))
		c.in = append(c.in, w.rules)
		if c.legislation++; c.legislation > 1 && !c.ads { // such a stream has no fence
			c.leaves()
		}
		for t, asked := range c.asked {
			for name := range asked {
				w.goesUp(t, name, c)
			}
		}
	}
	w.alone()
	w.ruled(file(w.rules))
	w.fence()
}

// alone waits until the relay has no call that has left: what such a one asked for would be judged by rules that come after it.
func (w *crowd) alone() {
	open := 0
	for _, c := range w.callers {
		if _, end := c.heard(); c.stream != nil && end == nil {
			open++
		}
	}
	peer.Eventually(w.t, patience, func() error {
		if n := w.relay.Count(); n > open {
			return fmt.Errorf("the relay has %d streams, and %d are open", n, open)
		}
		return nil
	})
}

func (w *crowd) goesUp(t cache.TypeURL, name string, c *caller) {
	if c.may(t, name) {
		put(w.mayGoUp, t, name)
	}
}

func (w *crowd) come() {
	of, c := pick(w.r, append([]cache.TypeURL{"", "", ""}, types...)), &caller{crowd: w, identity: pick(w.r, certified()), node: nodeOf(pick(w.r, ids), "")}
	c.ads, c.in = of == "", [][]ruling{w.rules}
	c.asked, c.had, c.first = make(map[cache.TypeURL]map[string]bool), make(map[cache.TypeURL]map[string]bool), make(map[cache.TypeURL]bool)
	c.call = begin(w.t, w.conns[c.identity], pick(w.r, spoken[of]), of)
	w.callers = append(w.callers, c)
}

// asks sends a random request.
func (c *caller) asks() {
	w, t := c.crowd, c.of
	if c.ads {
		t = pick(w.r, types)
	}
	if c.fetched {
		return
	}
	c.fetched = c.stream == nil
	var ask, others []string
	for range w.r.IntN(4) {
		ask = append(ask, pick(w.r, names))
	}
	if w.r.IntN(6) == 0 {
		ask = append(ask, "*")
	}
	if c.is("Delta") && w.r.IntN(3) == 0 {
		others = append(others, pick(w.r, names))
	}
	var brought map[string]string
	if !c.first[t] && c.stream != nil && w.r.IntN(2) == 0 {
		name := pick(w.r, names)
		brought = map[string]string{name: "7"}
		put(c.had, t, name)
	}
	c.notes("asks %s for %v, brings %v, gives up %v", t.Short(), ask, brought, others)
	for _, name := range ask {
		put(c.asked, t, name)
	}
	if len(ask) == 0 && !c.first[t] {
		put(c.asked, t, "*") // for some types
	}
	for name := range c.asked[t] {
		w.goesUp(t, name, c)
	}
	c.first[t] = true
	c.asksFor(t, c.node, brought, ask, others)
}

// may reports whether it has asked for a name, and could read it at some time since what was judged last.
func (c *caller) may(t cache.TypeURL, name string) bool {
	return c.asked[t][name] && slices.ContainsFunc(c.in, func(in []ruling) bool { return allowed(in, c.identity, c.node.GetId(), t, name) })
}

// fence judges all that has been said. A stream for all types is asked for something of a type that no rule reads: what came
// before the answer was said before.
func (w *crowd) fence() {
	w.fences++
	name := "fence " + strconv.Itoa(w.fences)
	for _, c := range w.callers {
		if c.ads {
			c.asksFor(cache.Runtime, c.node, nil, []string{name}, nil)
		}
	}
	for _, c := range slices.Clone(w.callers) {
		if c.ads {
			_ = c.awaits(name, func(all []*answer) bool { return anyOf(all, func(a *answer) bool { return a.errors[name] != 0 }) }) // its end is judged next
		}
		c.judges()
		if c.ads {
			c.in = c.in[len(c.in)-1:]
		}
	}
	for t, asked := range w.plane.takeAsked() {
		for name := range asked {
			if w.judged++; !w.mayGoUp[t][name] {
				w.t.Fatalf("the control plane is asked for %s %q, which nobody may read\n%s", t, name, file(w.rules))
			}
		}
	}
}

// judges looks at what has come since, and at the end.
func (c *caller) judges() {
	got, end := c.heard()
	for _, a := range got[c.looked:] {
		c.looked++
		if a.t != cache.Runtime {
			c.judge(a)
		}
	}
	refused := func(in []ruling) bool {
		return !admitted(in, c.identity, c.node.GetId()) || !c.ads && !ruled(in, c.identity, c.node.GetId(), func(rd *reading, _ map[string]string) bool { return slices.Contains(rd.types, c.of) })
	}
	switch {
	case end == nil && c.ads && len(c.in) == 1 && refused(c.in[0]):
		c.fails("it is served")
	case status.Code(end) == codes.PermissionDenied && c.stream != nil && !slices.ContainsFunc(c.in, refused):
		c.fails("it is refused: %v", end)
	case end != nil || c.fetched:
		c.leaves()
	}
}

func (c *caller) judge(a *answer) {
	w, t := c.crowd, a.t
	c.notes("is sent %s %v, without %v, errors %v", t.Short(), a.texts, a.removed, a.errors)
	for name, text := range a.texts {
		w.judged++
		if !c.may(t, "*") && !c.may(t, name) && !slices.ContainsFunc(aliasesOf(name), func(alias string) bool { return c.may(t, alias) }) {
			c.fails("it is sent %s %q", t, name)
		}
		if !strings.HasPrefix(text, name+" ") {
			c.fails("it is sent %s %q as %q", t, text, name)
		}
		put(c.had, t, name)
	}
	for _, name := range a.removed {
		if w.judged++; !c.had[t][name] && !c.may(t, name) && !c.may(t, "*") {
			c.fails("it is told that %s %q is gone, which it may not read and never had", t, name)
		}
	}
	for name, code := range a.errors {
		w.judged++
		denied := codes.Code(code) == codes.PermissionDenied //nolint:gosec // a code
		if len(c.in) == 1 && c.may(t, name) == denied {
			c.fails("error of %s %q: %v, may read it: %v", t, name, code, !denied)
		}
	}
}

// leaves ends its call. What has come is judged.
func (c *caller) leaves() {
	c.over()
	got, _ := c.heard()
	for _, a := range got[c.looked:] {
		c.looked++
		if a.t != cache.Runtime {
			c.judge(a)
		}
	}
	c.crowd.callers = slices.DeleteFunc(c.crowd.callers, func(o *caller) bool { return o == c })
}

func (c *caller) notes(format string, args ...any) {
	c.log = append(c.log, fmt.Sprintf(format, args...))
}

func (c *caller) fails(format string, args ...any) {
	c.t.Helper()
	c.t.Fatalf("%s as %s, %s: %s\n%s\n%s", c.identity, c.node.GetId(), c.method, fmt.Sprintf(format, args...), strings.Join(c.log, "\n"), file(c.crowd.rules))
}

// TestLive plays random identities, rules, requests, updates and changes of the rules over gRPC with mutual TLS, by every
// variant: nobody is sent, or learns of, what is not theirs. TUPLES_LIVE says how many things are judged.
func TestLive(t *testing.T) {
	tuples, judged := 500, 0
	if n, err := strconv.Atoi(os.Getenv("TUPLES_LIVE")); err == nil {
		tuples = n
	}
	for seed := uint64(1); judged < tuples; seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			w := newCrowd(t, seed)
			for range 200 {
				w.step()
			}
			w.fence()
			for _, c := range slices.Clone(w.callers) {
				c.leaves()
			}
			if broken := w.relay.Check(); len(broken) > 0 {
				t.Error(broken)
			}
			judged += w.judged
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d things were judged", judged)
}

func (w *crowd) step() {
	switch n := w.r.IntN(20); {
	case n < 2 || len(w.callers) == 0:
		w.come()
	case n == 2 && len(w.callers) > 6:
		pick(w.r, w.callers).leaves()
	case n < 12:
		pick(w.r, w.callers).asks()
	case n < 17:
		w.change()
	case n == 17:
		w.fence()
	case n == 18:
		w.legislate()
	}
}
