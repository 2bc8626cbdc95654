package envoy

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/loopback"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// plane is a control plane: the plain protocol in both variants, over ADS and one stream
// a type, from a world that the test changes. It can be stopped and started again.
type plane struct {
	t    testing.TB
	addr string
	tape *peer.Tape
	// waits: listeners, routes and virtual hosts wait until clusters and endpoints are
	// acknowledged, and removals until everything is, as in Consul.
	waits bool
	// onDemand says what is there for who asks for it by name, and not in the wildcard's
	// set; nil: nothing.
	onDemand func(u cache.TypeURL, name string) bool
	// tellsMissing: a name that is asked for and does not exist is answered; else with
	// silence, as go-control-plane does.
	tellsMissing bool
	// silentOnEmptyGlobs: a glob without members is answered with silence; else by its name.
	silentOnEmptyGlobs bool
	// credentials are those of its listener; nil: plaintext.
	credentials credentials.TransportCredentials
	// loads takes in load reports; nil: it has no such service.
	loads *peer.Loads

	// The server that runs, if one does.
	grpc   *grpc.Server
	serves sync.WaitGroup

	mu      sync.Mutex
	world   world
	beats   map[cache.TypeURL]int // of heartbeats and renewals
	changed chan struct{}         // closed at each change
}

func newPlane(t testing.TB, w world) *plane {
	p := &plane{t: t, addr: loopback.Reserve(t), tape: peer.NewTape(t, "the control plane's streams"), world: w, changed: make(chan struct{}), beats: make(map[cache.TypeURL]int)}
	t.Cleanup(p.Stop)
	return p
}

// Start listens and serves.
func (p *plane) Start() *plane {
	p.t.Helper()
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		p.t.Fatalf("control plane: %v", err)
	}
	options := []grpc.ServerOption{grpc.UnknownServiceHandler(p.serve)}
	if p.credentials != nil {
		options = append(options, grpc.Creds(p.credentials))
	}
	s := grpc.NewServer(options...)
	p.grpc = s
	p.serves.Go(func() {
		if err := s.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			p.t.Errorf("control plane: %v", err)
		}
	})
	return p
}

// Stop closes the listener and all connections. It may be called twice.
func (p *plane) Stop() {
	if p.grpc != nil {
		p.grpc.Stop()
		p.serves.Wait()
		p.grpc = nil
	}
}

// Change changes the world, all at once.
func (p *plane) Change(change func(world)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p.world)
	p.announce()
}

// Beat sends heartbeats for what has a TTL in a type, and again what is leased.
func (p *plane) Beat(u cache.TypeURL) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.beats[u]++
	p.announce()
}

// announce wakes the streams; its caller holds the lock.
func (p *plane) announce() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// view is the world at one moment, and what is closed when that is over.
type view struct {
	world   world
	beats   map[cache.TypeURL]int
	changed <-chan struct{}
}

func (p *plane) look() view {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := view{world: make(world), beats: maps.Clone(p.beats), changed: p.changed}
	for u, all := range p.world {
		v.world[u] = maps.Clone(all)
	}
	return v
}

// order is that of make before break; types that are not listed come last.
var order = []cache.TypeURL{
	cache.Secret, cache.Cluster, cache.Endpoint, cache.Listener, cache.ScopedRoute, cache.Route, cache.VirtualHost, cache.Runtime, cache.Extension,
}

// consumers are the types that use clusters.
var consumers = []cache.TypeURL{cache.Listener, cache.ScopedRoute, cache.Route, cache.VirtualHost}

// conversation is one stream.
type conversation struct {
	p      *plane
	id     int
	stream grpc.ServerStream
	delta  bool
	types  map[cache.TypeURL]*topic
	nonce  int
}

// topic is one type of a stream.
type topic struct {
	url      cache.TypeURL
	asked    bool
	wildcard bool
	names    map[string]bool
	fresh    map[string]bool // named by the client since they were last sent
	answered bool            // the wildcard
	sent     map[string]resource
	pending  int // nonce of the oldest response without an answer; 0: none
	last     int // nonce of the last response
	beats    int
	lean     map[string]bool // in the next response without a body, which renews a TTL
}

// request is one of either variant.
type request struct {
	url         cache.TypeURL
	node        *core.Node
	whole       bool // names are all that is wanted
	names, less []string
	known       map[string]string
	nonce, nack string
}

// serve is every method there is.
func (p *plane) serve(_ any, stream grpc.ServerStream) error {
	full, _ := grpc.MethodFromServerStream(stream)
	if p.loads != nil && p.loads.Is(full) {
		return p.loads.Serve(stream)
	}
	method := full[strings.LastIndexByte(full, '/')+1:]
	c := &conversation{p: p, stream: stream, delta: strings.HasPrefix(method, "Delta"), types: make(map[cache.TypeURL]*topic)}
	if !c.delta && !strings.HasPrefix(method, "Stream") {
		return status.Error(codes.Unimplemented, "no "+full) // health checks, too
	}
	c.id = p.tape.Opens()
	requests := make(chan request)
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	go c.receive(ctx, requests)
	for {
		now := p.look()
		if err := c.push(now); err != nil {
			return err
		}
		select {
		case r, ok := <-requests:
			if !ok {
				return nil
			}
			c.take(r, now)
		case <-now.changed:
		case <-ctx.Done():
			return nil
		}
	}
}

func (c *conversation) receive(ctx context.Context, requests chan<- request) {
	defer close(requests)
	for {
		var r request
		if c.delta {
			var m discovery.DeltaDiscoveryRequest
			if c.stream.RecvMsg(&m) != nil {
				return
			}
			c.p.tape.Take(c.id, &m)
			r = request{
				url: cache.TypeURL(m.GetTypeUrl()), node: m.GetNode(), names: m.GetResourceNamesSubscribe(), less: m.GetResourceNamesUnsubscribe(),
				known: m.GetInitialResourceVersions(), nonce: m.GetResponseNonce(), nack: m.GetErrorDetail().GetMessage(),
			}
		} else {
			var m discovery.DiscoveryRequest
			if c.stream.RecvMsg(&m) != nil {
				return
			}
			c.p.tape.Take(c.id, &m)
			r = request{
				url: cache.TypeURL(m.GetTypeUrl()), node: m.GetNode(), whole: true, names: m.GetResourceNames(),
				nonce: m.GetResponseNonce(), nack: m.GetErrorDetail().GetMessage(),
			}
		}
		select {
		case requests <- r:
		case <-ctx.Done():
			return
		}
	}
}

func (c *conversation) take(r request, now view) {
	t := c.types[r.url]
	if t == nil {
		t = &topic{url: r.url, names: make(map[string]bool), fresh: make(map[string]bool), sent: make(map[string]resource), beats: now.beats[r.url]}
		c.types[r.url] = t
	}
	if nonce, err := strconv.Atoi(r.nonce); err == nil && nonce >= t.last {
		t.pending = 0
	}
	// What a client brings it has; its version says which.
	for name, version := range r.known {
		t.sent[name] = resource{version: version}
	}
	explicit := slices.DeleteFunc(slices.Clone(r.names), func(name string) bool { return name == "*" })
	if !t.asked {
		t.wildcard = len(r.names) == 0 && startsWild(r.url)
		t.asked = true
	}
	t.wildcard = t.wildcard || len(explicit) < len(r.names)
	if r.whole {
		gone := maps.Clone(t.names)
		for _, name := range explicit {
			delete(gone, name)
		}
		r.less = slices.Collect(maps.Keys(gone))
		explicit = slices.DeleteFunc(explicit, func(name string) bool { return t.names[name] })
	}
	for _, name := range explicit {
		t.names[name] = true
		if _, brought := r.known[name]; !brought {
			t.fresh[name] = true
		}
	}
	t.asksGlobs(r)
	for _, name := range r.less {
		delete(t.names, name)
		delete(t.fresh, name)
		if !t.wildcard {
			delete(t.sent, name)
		}
		t.leavesGlob(name)
	}
}

// startsWild: an empty first request of the type asks for all.
func startsWild(u cache.TypeURL) bool {
	return slices.Contains([]cache.TypeURL{cache.Cluster, cache.Listener, cache.ScopedRoute, cache.VirtualHost}, u)
}

// push sends what is to be sent now: first what is new, in order, then what is gone, in
// the reverse order. Of what uses clusters both go in one response, as other control planes
// do it.
func (c *conversation) push(now view) error {
	topics := slices.SortedFunc(maps.Values(c.types), func(a, b *topic) int { return cmp.Compare(place(a.url), place(b.url)) })
	for _, t := range topics {
		if c.p.waits && slices.Contains(consumers, t.url) && (c.owed(cache.Cluster) || c.owed(cache.Endpoint)) {
			continue
		}
		if err := c.add(t, now); err != nil {
			return err
		}
	}
	slices.Reverse(topics)
	for _, t := range topics {
		if c.p.waits && slices.ContainsFunc(topics, func(t *topic) bool { return t.pending != 0 }) {
			return nil
		}
		if slices.Contains(consumers, t.url) {
			continue
		}
		if err := c.remove(t, now); err != nil {
			return err
		}
	}
	return nil
}

// owed says whether a response of the type has no answer yet.
func (c *conversation) owed(u cache.TypeURL) bool {
	return c.types[u] != nil && c.types[u].pending != 0
}

func place(u cache.TypeURL) int {
	if i := slices.Index(order, u); i >= 0 {
		return i
	}
	return len(order)
}

// wants says whether the client's interest covers a resource.
func (c *conversation) wants(t *topic, name string, r resource) bool {
	hidden := c.p.onDemand != nil && c.p.onDemand(t.url, name)
	return t.wildcard && !hidden || t.names[name] || t.names[globOf(name)] || slices.ContainsFunc(r.aliases, func(alias string) bool { return t.names[alias] })
}

func (c *conversation) add(t *topic, now view) error {
	has, beats := now.world[t.url], now.beats[t.url]
	var news, gone []string
	missing := t.answersGlobs(has, c.p.silentOnEmptyGlobs)
	if slices.Contains(consumers, t.url) {
		gone = t.forget(has)
	}
	t.lean = make(map[string]bool)
	for _, name := range slices.Sorted(maps.Keys(has)) {
		r := has[name]
		fresh := t.fresh[name] || slices.ContainsFunc(r.aliases, func(alias string) bool { return t.fresh[alias] })
		if !c.wants(t, name, r) {
			continue
		}
		changed := fresh || t.sent[name].version != r.version
		if renewed := (r.ttl > 0 || r.leased) && beats > t.beats; changed || renewed {
			news = append(news, name)
			t.lean[name] = !changed && !r.leased
		}
	}
	if c.p.tellsMissing {
		for _, name := range slices.Sorted(maps.Keys(t.fresh)) {
			_, exists := has[name]
			aliased := slices.ContainsFunc(news, func(n string) bool { return slices.Contains(has[n].aliases, name) })
			if !exists && !aliased {
				missing = append(missing, name)
			}
		}
	}
	empty := t.wildcard && !t.answered // and nothing to say: that is an answer, too
	// SotW says of a whole state only that something is gone.
	tellsGone := len(gone) > 0 && (c.delta || isWhole(t.url))
	if len(news) == 0 && len(missing) == 0 && !tellsGone && !empty {
		return nil
	}
	t.beats, t.answered = beats, true
	if !c.delta && isWhole(t.url) {
		// A whole state; clusters that are to go are in it for now.
		all := maps.Clone(t.sent)
		for name, r := range has {
			if c.wants(t, name, r) {
				all[name] = r
			}
		}
		t.sent = all
		clear(t.fresh)
		return c.sendWhole(t)
	}
	for _, name := range news {
		t.sent[name] = has[name]
		delete(t.fresh, name)
		for _, alias := range has[name].aliases {
			delete(t.fresh, alias)
		}
	}
	for _, name := range missing {
		delete(t.fresh, name)
	}
	return c.send(t, news, gone, missing)
}

// forget returns what was sent and exists no more, and takes it as told.
func (t *topic) forget(has map[string]resource) (gone []string) {
	for _, name := range slices.Sorted(maps.Keys(t.sent)) {
		if _, exists := has[name]; !exists {
			gone = append(gone, name)
			delete(t.sent, name)
		}
	}
	return gone
}

func (c *conversation) remove(t *topic, now view) error {
	gone := t.forget(now.world[t.url])
	switch {
	case len(gone) == 0:
		return nil
	case c.delta:
		return c.send(t, nil, gone, nil)
	case isWhole(t.url):
		return c.sendWhole(t)
	}
	return nil // SotW has no word for it
}

func isWhole(u cache.TypeURL) bool {
	return u == cache.Cluster || u == cache.Listener || u == cache.ScopedRoute
}

func (c *conversation) sendWhole(t *topic) error {
	return c.send(t, slices.Sorted(maps.Keys(t.sent)), nil, nil)
}

// send says what there is, what is gone, and what there has never been.
func (c *conversation) send(t *topic, names, gone, none []string) error {
	c.nonce++
	t.last = c.nonce
	if t.pending == 0 {
		t.pending = c.nonce
	}
	nonce := strconv.Itoa(c.nonce)
	var m proto.Message
	if c.delta {
		d := &discovery.DeltaDiscoveryResponse{TypeUrl: string(t.url), Nonce: nonce, SystemVersionInfo: nonce}
		d.RemovedResources = gone
		for _, name := range none {
			if t.url == cache.VirtualHost { // which has a word of its own for it: no body
				d.Resources = append(d.Resources, &discovery.Resource{Name: name, Aliases: []string{name}})
			} else {
				d.RemovedResources = append(d.RemovedResources, name)
			}
		}
		for _, name := range names {
			r := t.sent[name]
			resource := &discovery.Resource{Name: name, Version: r.version, Resource: r.body, Aliases: r.aliases}
			if r.ttl > 0 {
				resource.Ttl = durationpb.New(r.ttl)
			}
			if t.lean[name] {
				resource.Resource = nil
			}
			d.Resources = append(d.Resources, resource)
		}
		m = d
	} else {
		s := &discovery.DiscoveryResponse{TypeUrl: string(t.url), Nonce: nonce, VersionInfo: nonce}
		for _, name := range names {
			s.Resources = append(s.Resources, t.sent[name].body)
		}
		m = s
	}
	c.p.tape.Take(c.id, m)
	return c.stream.SendMsg(m)
}
