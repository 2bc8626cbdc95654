package e2e

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/xds-relay/xds-relay/cache"
)

// sotwClient speaks SotW ADS as gRPC clients do: names only, and the node in the
// first request of a stream. It checks what it gets: no resource twice in a
// response, a version in each, nothing that was not asked for, and nothing that
// says what the client knows already, unless it is owed.
type sotwClient struct {
	record
	t    testing.TB
	conn *grpc.ClientConn
	// foreign: it watches a type whose names are not to be found in its resources.
	foreign bool
	// agent is what it calls itself; empty: as gRPC's own does.
	agent string

	types map[cache.TypeURL]*sotwType
	order []cache.TypeURL

	// Of the open stream.
	stream    discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	cancel    context.CancelFunc
	receiving sync.WaitGroup
	closing   bool
	greeted   bool
}

type sotwType struct {
	// Survives a broken stream.
	names    []string
	held     map[string]held
	version  string
	notFound map[string]bool
	errors   map[string]*discovery.ResourceError

	// Dies with the stream.
	nonce     string
	asked     map[string]bool // every name of this stream's requests
	owed      map[string]owed // may come though nothing about it has changed
	owedAll   bool            // full-state: the set may come though it is the same
	responses int
}

// openSotw opens a stream on which nothing is asked for yet.
func openSotw(t testing.TB, target, name string, opts ...grpc.DialOption) *sotwClient {
	t.Helper()
	c := &sotwClient{record: record{name: name}, t: t, conn: dial(t, target, opts...), types: make(map[cache.TypeURL]*sotwType)}
	t.Cleanup(c.Close)
	c.Open()
	return c
}

// Open opens a stream and restates on it what the client watches.
func (c *sotwClient) Open() {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(c.conn).StreamAggregatedResources(ctx)
	if err != nil {
		cancel()
		c.t.Fatalf("%s: %v", c.name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stream, c.cancel, c.closing, c.greeted = stream, cancel, false, false
	for _, u := range c.order {
		s := c.types[u]
		s.nonce, s.asked, s.owed, s.owedAll = "", make(map[string]bool), make(map[string]owed), true
		for _, name := range s.names {
			s.asked[name], s.owed[name] = true, owed{answers: 1}
		}
		c.request(u, s)
	}
	c.receiving.Go(func() { c.receive(stream) })
}

// Close ends the stream.
func (c *sotwClient) Close() {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	c.cancel()
	c.receiving.Wait()
}

func (c *sotwClient) of(u cache.TypeURL) *sotwType {
	s := c.types[u]
	if s == nil {
		s = &sotwType{
			held: make(map[string]held), notFound: make(map[string]bool), errors: make(map[string]*discovery.ResourceError),
			asked: make(map[string]bool), owed: make(map[string]owed),
		}
		c.types[u] = s
		c.order = append(c.order, u)
	}
	return s
}

// Watch replaces the names that the client watches.
func (c *sotwClient) Watch(u cache.TypeURL, names ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.of(u)
	for _, name := range names {
		s.asked[name] = true
		if !slices.Contains(s.names, name) {
			s.owed[name], s.owedAll = owed{answers: 1}, true
		}
	}
	for _, name := range s.names {
		if !slices.Contains(names, name) {
			delete(s.held, name)
			delete(s.notFound, name)
			s.owedAll = true // an answer may be under way
		}
	}
	s.names = slices.Clone(names)
	c.request(u, s)
}

// request says what the client watches, which is also the ACK of the last
// response.
func (c *sotwClient) request(u cache.TypeURL, s *sotwType) {
	req := &discovery.DiscoveryRequest{
		TypeUrl: string(u), ResourceNames: s.names, VersionInfo: s.version, ResponseNonce: s.nonce,
	}
	if !c.greeted {
		c.greeted = true
		req.Node = &core.Node{Id: c.name, UserAgentName: cmp.Or(c.agent, "gRPC Go"), ClientFeatures: []string{
			"envoy.lb.does_not_support_overprovisioning", "xds.config.resource-in-sotw",
		}}
	}
	_ = c.stream.Send(req) // a stream that is gone says so to the receiver
}

func (c *sotwClient) receive(stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient) {
	for {
		r, err := stream.Recv()
		if err != nil {
			c.mu.Lock()
			if !c.closing {
				c.ends = append(c.ends, err)
			}
			c.mu.Unlock()
			return
		}
		c.mu.Lock()
		c.take(r)
		c.mu.Unlock()
	}
}

func (c *sotwClient) take(r *discovery.DiscoveryResponse) {
	u := cache.TypeURL(r.GetTypeUrl())
	s := c.of(u)
	s.responses++
	if r.GetVersionInfo() == "" {
		c.fault("response %s of %s has no version", r.GetNonce(), u.Short()) // DOWN-SOTW-11
	}
	set := make(map[string]held)
	for _, any := range r.GetResources() {
		name := nameIn(any.GetValue())
		if _, again := set[name]; again {
			c.fault("response %s lists %q twice", r.GetNonce(), name) // DOWN-SOTW-14
		}
		if !s.asked[name] {
			c.fault("%s %q came, and was never asked for", u.Short(), name)
		}
		set[name] = held{body: any.GetValue()}
	}
	c.heard = append(c.heard, heard{typeURL: u, nonce: r.GetNonce(), set: slices.Sorted(maps.Keys(set))})
	c.checkNews(u, s, r, set)

	full := u == cache.Listener || u == cache.Cluster
	for name, h := range set {
		if old, had := s.held[name]; u == cache.Cluster && (!had || string(old.body) != string(h.body) || s.owed[name].answers > 0) {
			c.owe(h.body)
		}
		delete(s.notFound, name)
		delete(s.errors, name)
	}
	if full {
		// A name that is not known yet is not in the set, and not gone either.
		s.held, s.owedAll = set, false
		maps.DeleteFunc(s.owed, func(name string, _ owed) bool { _, came := set[name]; return came })
	} else {
		maps.Copy(s.held, set)
	}
	maps.DeleteFunc(s.held, func(name string, _ held) bool { return !c.foreign && !slices.Contains(s.names, name) })
	for _, e := range r.GetResourceErrors() {
		name := e.GetResourceName().GetName()
		s.errors[name] = e
		if e.GetErrorDetail().GetCode() == int32(cache.NotFound) {
			s.notFound[name] = true
			delete(s.held, name)
		}
	}
	s.nonce, s.version = r.GetNonce(), r.GetVersionInfo()
	c.request(u, s)
}

// checkNews complains of a response that tells nothing new.
func (c *sotwClient) checkNews(u cache.TypeURL, s *sotwType, r *discovery.DiscoveryResponse, set map[string]held) {
	if len(r.GetResourceErrors()) > 0 {
		return
	}
	same := func(a, b held) bool { return string(a.body) == string(b.body) }
	if u == cache.Listener || u == cache.Cluster {
		if !s.owedAll && maps.EqualFunc(set, s.held, same) {
			c.fault("response %s of %s lists what the one before it did", r.GetNonce(), u.Short())
		}
		return
	}
	for name, h := range set {
		n := fresh
		if old, had := s.held[name]; had && same(old, h) {
			n = again
		} else if had || s.notFound[name] {
			n = changed
		}
		if !allows(s.owed, name, n) {
			c.fault("%s %q came again unchanged, in response %s", u.Short(), name, r.GetNonce())
		}
	}
	if len(set) == 0 {
		c.fault("response %s of %s says nothing", r.GetNonce(), u.Short())
	}
}

// owe notes that the endpoints of a cluster that has just come may come again
// (ORDER-4).
func (c *sotwClient) owe(body []byte) {
	if name, ok := edsNameIn(body); ok {
		eds := c.of(cache.Endpoint)
		o := eds.owed[name]
		o.warming = true
		eds.owed[name] = o
	}
}

// Has complains unless the client holds exactly these names of a type.
func (c *sotwClient) Has(u cache.TypeURL, names ...string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(names)
	if got := slices.Sorted(maps.Keys(c.of(u).held)); !slices.Equal(got, names) {
		return fmt.Errorf("%s holds %s %.300q, not %.300q", c.name, u.Short(), got, names)
	}
	return nil
}

// Get is what the client holds under a name.
func (c *sotwClient) Get(u cache.TypeURL, name string) (h held, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, ok = c.of(u).held[name]
	return h, ok
}

// AtLeast complains unless the client holds a name at a revision or a later one.
func (c *sotwClient) AtLeast(u cache.TypeURL, name string, revision int) error {
	h, ok := c.Get(u, name)
	return atLeast(c.name, u, name, h, ok, revision)
}

// Failed complains unless the client was told an error of a name, of this code.
func (c *sotwClient) Failed(u cache.TypeURL, name string, code codes.Code) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return is(fmt.Sprintf("%s's error of %s %q", c.name, u.Short(), name), codes.Code(c.of(u).errors[name].GetErrorDetail().GetCode()), code)
}

// Missing complains unless the client was told that a name does not exist.
func (c *sotwClient) Missing(u cache.TypeURL, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.of(u).notFound[name] {
		return fmt.Errorf("%s was not told that %s %q is missing", c.name, u.Short(), name)
	}
	return nil
}

// Version is the version_info of a type's last response.
func (c *sotwClient) Version(u cache.TypeURL) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of(u).version
}
