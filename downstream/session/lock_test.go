package session

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/test/scaling"
)

// BenchmarkUnderLock is what it costs other clients of a type that one of them has very many
// names, or that very much changes: nothing may take more than n log n steps (VALID-9).
func BenchmarkUnderLock(b *testing.B) {
	config := fanout.Config{
		Linger: time.Minute, MaxLinger: 10_000,
		Lock: func() sync.Locker { return &scaling.Lock{} },
	}
	for _, c := range crowdings {
		b.Run(c.name, func(b *testing.B) {
			scaling.Run(b, c.n, func(n int) func() {
				return c.setup(&crowd{b: b, url: c.url, n: n, hub: fanout.NewHub(config)})
			})
		})
	}
}

// crowdings are what is measured, each with so many names.
var crowdings = []struct {
	name  string
	n     int
	url   cache.TypeURL
	setup func(*crowd) (call func())
}{
	{"an aliased reconnect", 40_000, cache.Endpoint, func(w *crowd) func() {
		keep := w.client(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: w.names("a")})
		held := w.changes(byAlias)
		keep.rest()
		c := w.client(nil)
		req := &discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: w.names("a"), InitialResourceVersions: held}
		return func() { c.asks(req); c.next() }
	}},
	{"an aliased reconnect, in any order", 40_000, cache.Endpoint, func(w *crowd) func() {
		keep := w.client(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: w.names("a")})
		held := w.changes(byAlias)
		keep.rest()
		c := w.client(nil)
		req := &discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: shuffled(w.names("a")), InitialResourceVersions: held}
		return func() { c.asks(req); c.next() }
	}},
	{"a reconnect", 40_000, cache.Endpoint, func(w *crowd) func() {
		keep := w.client(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: w.names("r")})
		held := w.changes(byName)
		keep.rest()
		c := w.client(nil)
		req := &discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: w.names("r"), InitialResourceVersions: held}
		return func() { c.asks(req); c.next() }
	}},
	{"a reconnect of one with the wildcard", 40_000, cache.Cluster, func(w *crowd) func() {
		keep := w.client(&discovery.DeltaDiscoveryRequest{})
		held := w.changes(members)
		keep.rest()
		c := w.client(nil)
		req := &discovery.DeltaDiscoveryRequest{InitialResourceVersions: held}
		return func() { c.asks(req); c.next() }
	}},
	{"a wake of one who waits for a name", 40_000, cache.Endpoint, func(w *crowd) func() {
		keep := w.client(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: w.names("r")})
		held := w.changes(byName)
		keep.rest()
		c := w.client(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: append(w.names("r"), "nowhere"), InitialResourceVersions: held})
		c.rest()
		w.n = 1
		w.changes(byName)
		return func() { c.next() }
	}},
	{"a mass unsubscribe", 200_000, cache.Endpoint, func(w *crowd) func() {
		keep := w.client(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: w.names("r")})
		w.changes(byName)
		keep.rest()
		c := w.client(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: w.names("r")})
		c.rest()
		req := &discovery.DeltaDiscoveryRequest{ResourceNamesUnsubscribe: w.names("r")}
		return func() { c.asks(req) }
	}},
	{"a mass unsubscribe by the last client", 200_000, cache.Endpoint, func(w *crowd) func() {
		c := w.client(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: w.names("r")})
		w.changes(byName)
		c.rest()
		req := &discovery.DeltaDiscoveryRequest{ResourceNamesUnsubscribe: w.names("r")}
		return func() { c.asks(req) }
	}},
	{"a mass unsubscribe by the last client, in any order", 200_000, cache.Endpoint, func(w *crowd) func() {
		c := w.client(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: w.names("r")})
		w.changes(byName)
		c.rest()
		req := &discovery.DeltaDiscoveryRequest{ResourceNamesUnsubscribe: shuffled(w.names("r"))}
		return func() { c.asks(req) }
	}},
	{"a mass unsubscribe under the wildcard", 40_000, cache.Endpoint, func(w *crowd) func() {
		c := w.client(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: append(w.names("a"), fanout.Wildcard)})
		w.changes(members)
		w.changes(byAlias)
		c.rest()
		req := &discovery.DeltaDiscoveryRequest{ResourceNamesUnsubscribe: w.names("a")}
		return func() { c.asks(req); c.next() }
	}},
	{"a mass subscribe under the wildcard", 40_000, cache.Endpoint, func(w *crowd) func() {
		c := w.client(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{fanout.Wildcard}})
		w.changes(members)
		c.rest()
		req := &discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: w.names("a")}
		return func() { c.asks(req); c.next() }
	}},
	{"a SotW ACK", 10_000, cache.Endpoint, func(w *crowd) func() {
		names := w.names("r")
		c := w.client(&discovery.DiscoveryRequest{ResourceNames: names})
		w.changes(byName)
		c.next()
		req := &discovery.DiscoveryRequest{ResourceNames: received(names), ResponseNonce: c.nonce}
		return func() { c.asks(req) }
	}},
	{"a SotW ACK, in any order", 10_000, cache.Endpoint, func(w *crowd) func() {
		names := shuffled(w.names("r"))
		c := w.client(&discovery.DiscoveryRequest{ResourceNames: names})
		w.changes(byName)
		c.next()
		req := &discovery.DiscoveryRequest{ResourceNames: received(names), ResponseNonce: c.nonce}
		return func() { c.asks(req) }
	}},
	{"a change for a SotW client", 10_000, cache.Endpoint, func(w *crowd) func() {
		names := w.names("r")
		c := w.client(&discovery.DiscoveryRequest{ResourceNames: names})
		w.changes(byName)
		c.next()
		c.asks(&discovery.DiscoveryRequest{ResourceNames: names, ResponseNonce: c.nonce})
		w.n = 1
		w.changes(byName)
		return func() { c.next() }
	}},
	{"a SotW request for one name more", 10_000, cache.Endpoint, func(w *crowd) func() {
		names := w.names("r")
		c := w.client(&discovery.DiscoveryRequest{ResourceNames: names})
		w.changes(byName)
		c.next()
		c.asks(&discovery.DiscoveryRequest{ResourceNames: names, ResponseNonce: c.nonce})
		req := &discovery.DiscoveryRequest{ResourceNames: append(received(names), "z"), ResponseNonce: c.nonce}
		return func() { c.asks(req); c.next() }
	}},
	{"a late subscriber to names with errors", 10_000, cache.Endpoint, func(w *crowd) func() {
		keep := w.client(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: w.names("r")})
		w.changes(byName)
		keep.rest()
		u := &cache.Update{}
		for _, name := range w.names("r") {
			u.Errors = append(u.Errors, cache.Error{Name: name, Status: &statuspb.Status{Code: 13}})
		}
		w.hub.Apply(fanout.Lane{Type: w.url}, u)
		keep.rest()
		req := &discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: w.names("r")}
		c := w.client(nil)
		return func() { c.asks(req); c.next() }
	}},
	{"a SotW request for half of the names", 40_000, cache.Endpoint, func(w *crowd) func() {
		names := w.names("r")
		c := w.client(&discovery.DiscoveryRequest{ResourceNames: names})
		w.changes(byName)
		c.next()
		req := &discovery.DiscoveryRequest{ResourceNames: names[:len(names)/2], ResponseNonce: c.nonce}
		return func() { c.asks(req); c.next() }
	}},
	{"a mass removal", 10_000, cache.Endpoint, func(w *crowd) func() {
		c := w.client(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: w.names("a")})
		w.changes(byAlias)
		c.rest()
		u := &cache.Update{Removed: w.names("r")}
		return func() { w.hub.Apply(fanout.Lane{Type: w.url}, u); c.next() }
	}},
	{"a removal of all that share an alias", 10_000, cache.Endpoint, func(w *crowd) func() {
		c := w.client(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"x"}})
		w.changes(sharing)
		c.rest()
		u := &cache.Update{Removed: w.names("r")}
		return func() { w.hub.Apply(fanout.Lane{Type: w.url}, u); c.next() }
	}},
	{"a change of one that a glob covers", 10_000, cache.Endpoint, func(w *crowd) func() {
		c := w.client(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{glob}})
		w.changes(covered)
		c.rest()
		w.n = 1
		return func() { w.changes(covered); c.next() }
	}},
	{"a removal of one that a glob covers", 10_000, cache.Endpoint, func(w *crowd) func() {
		c := w.client(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{glob}})
		w.changes(covered)
		c.rest()
		u := &cache.Update{Removed: []string{inGlob("r-0000000")}}
		return func() { w.hub.Apply(fanout.Lane{Type: w.url}, u); c.next() }
	}},
	{"a reconnect of one with a glob", 40_000, cache.Endpoint, func(w *crowd) func() {
		keep := w.client(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{glob}})
		held := w.changes(covered)
		keep.rest()
		c := w.client(nil)
		req := &discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{glob}, InitialResourceVersions: held}
		return func() { c.asks(req); c.next() }
	}},
	{"a glob is given up", 40_000, cache.Endpoint, func(w *crowd) func() {
		c := w.client(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{glob}})
		w.changes(covered)
		c.rest()
		req := &discovery.DeltaDiscoveryRequest{ResourceNamesUnsubscribe: []string{glob}}
		return func() { c.asks(req) }
	}},
	{"a mass unsubscribe of globs under the wildcard", 10_000, cache.Endpoint, func(w *crowd) func() {
		globs := w.names("xdstp://cp/t/g")
		for i := range globs {
			globs[i] += "/*"
		}
		c := w.client(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: append(globs, fanout.Wildcard)})
		w.changes(members)
		c.rest()
		req := &discovery.DeltaDiscoveryRequest{ResourceNamesUnsubscribe: received(globs)}
		return func() { c.asks(req); c.next() }
	}},
	{"a change of one with many aliases", 40_000, cache.Endpoint, func(w *crowd) func() {
		c := w.client(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: w.names("a")})
		change := func(version string) *cache.Update {
			return &cache.Update{Set: []cache.Received{{Resource: w.resource("r", version, w.names("a")[1:]...)}}}
		}
		w.hub.Apply(fanout.Lane{Type: w.url}, change("1"))
		c.rest()
		u := change("2")
		return func() { w.hub.Apply(fanout.Lane{Type: w.url}, u); c.next() }
	}},
	{"aliases of one are given up", 40_000, cache.Endpoint, func(w *crowd) func() {
		w.hub.Reconfigure(fanout.Config{MaxLinger: 1})
		c := w.client(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: w.names("a")})
		w.hub.Apply(fanout.Lane{Type: w.url}, &cache.Update{Set: []cache.Received{{Resource: w.resource("r", "1", w.names("a")...)}}})
		c.rest()
		req := &discovery.DeltaDiscoveryRequest{ResourceNamesUnsubscribe: w.names("a")}
		return func() {
			c.asks(req)
			w.hub.Changes(epoch, func(fanout.Lane) (fanout.Carrier, bool) { return fanout.Carrier{}, false })
		}
	}},
}

// crowd is a world with very many resources, r-0 and so on.
type crowd struct {
	b   *testing.B
	hub *fanout.Hub
	url cache.TypeURL
	n   int
	rev int
}

// ways are how resources come.
type ways int

const (
	byName  ways = iota // as what was asked for by name
	byAlias             // the same, each with an alias, a-0 and so on
	sharing             // the same, all with the alias x
	members             // in the wildcard's set, each with an alias
	covered             // as what a glob covers
)

const glob = "xdstp://cp/t/*"

// inGlob is a name that the glob covers.
func inGlob(name string) string { return strings.TrimSuffix(glob, "*") + name }

func (w *crowd) names(prefix string) []string {
	names := make([]string, w.n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%07d", prefix, i)
	}
	return names
}

func shuffled(names []string) []string {
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names
}

// received are names as another request brings them: equal, and not the same strings.
func received(names []string) []string {
	again := make([]string, len(names))
	for i, name := range names {
		again[i] = strings.Clone(name)
	}
	return again
}

func (w *crowd) resource(name, version string, aliases ...string) *cache.Resource {
	return cache.NewResource(w.url, &discovery.Resource{
		Name: name, Aliases: aliases, Resource: &anypb.Any{TypeUrl: string(w.url), Value: []byte(name + version)},
	}, cache.Fingerprint{})
}

// changes announces all resources, changed, and returns their versions.
func (w *crowd) changes(how ways) (versions map[string]string) {
	w.rev++
	versions = make(map[string]string)
	u := &cache.Update{Synced: how == members}
	aliases := w.names("a")
	for i, name := range w.names("r") {
		var r *cache.Resource
		switch version := fmt.Sprint(w.rev); how {
		case byName:
			r = w.resource(name, version)
		case covered:
			name = inGlob(name)
			r = w.resource(name, version)
		case sharing:
			r = w.resource(name, version, "x")
		default:
			r = w.resource(name, version, aliases[i])
		}
		versions[name] = r.Version
		u.Set = append(u.Set, cache.Received{Resource: r})
	}
	w.hub.Apply(fanout.Lane{Type: w.url, Wildcard: how == members}, u)
	return versions
}

// member is one of the crowd's clients.
type member struct {
	*crowd
	*Session
	nonce string
}

// client is a new one, whose first request is sent if there is any.
func (w *crowd) client(first any) *member {
	_, sotw := first.(*discovery.DiscoveryRequest)
	config := &Config{AckTimeout: 10 * time.Second, MaxName: 1000, MaxNames: 10_000_000}
	c := &member{crowd: w, Session: New(config, Stream{Delta: !sotw}, Peer{}, oneGroup{w.hub}, NewClusterDeliveries(), func() {})}
	if first != nil {
		c.asks(first)
	}
	return c
}

func (c *member) asks(req any) {
	c.b.Helper()
	var end *End
	switch req := req.(type) {
	case *discovery.DeltaDiscoveryRequest:
		req.TypeUrl = string(c.url)
		_, end = c.DeltaRequest(req, epoch)
	case *discovery.DiscoveryRequest:
		req.TypeUrl = string(c.url)
		_, end = c.SotWRequest(req, epoch)
	}
	if end != nil {
		c.b.Fatal(end)
	}
}

// next takes in a response; false: there is none.
func (c *member) next() bool {
	c.b.Helper()
	r, end := c.Next(epoch)
	if end != nil {
		c.b.Fatal(end)
	}
	if r != nil {
		c.nonce = r.Nonce
	}
	return r != nil
}

// rest has a Delta client accept all there is.
func (c *member) rest() {
	for c.next() {
		c.asks(&discovery.DeltaDiscoveryRequest{ResponseNonce: c.nonce})
	}
}
