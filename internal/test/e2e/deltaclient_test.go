package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/cache"
)

// deltaClient speaks Delta ADS, ACKs what it gets, and checks it: that no response
// names a thing twice, that nonces are new, that nothing comes unasked, and that
// nothing comes that it has already, unless it is owed.
type deltaClient struct {
	record
	t    testing.TB
	conn *grpc.ClientConn

	// Habits; set before Open.
	//
	// reject returns why a response is NACKed, or "".
	reject func(*discovery.DeltaDiscoveryResponse) string
	// follow is called with each accepted response, under the lock; it reports whether
	// the ACK is to be withheld.
	follow func(*discovery.DeltaDiscoveryResponse) (withhold bool)
	// persistent: it comes back when it is sent away UNAVAILABLE.
	persistent bool
	cluster    string // of its node

	types    map[cache.TypeURL]*deltaType
	order    []cache.TypeURL
	rejected map[cache.TypeURL]int

	// Of the open stream.
	stream    discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	cancel    context.CancelFunc
	receiving sync.WaitGroup
	closing   bool
	nonces    map[string]bool
}

// comeBack is when a client that was sent away tries again.
const comeBack = 50 * time.Millisecond

// deltaType is what the client knows of one type.
type deltaType struct {
	// Survives a broken stream.
	wildcard bool
	names    map[string]bool
	held     map[string]held
	absent   map[string]bool                     // told to be gone, or not to exist
	errors   map[string]*discovery.ResourceError // the last one of each name

	// Dies with the stream.
	requested bool
	opening   bool            // the wildcard's first answer is due, which may be empty
	asked     map[string]bool // every name subscribed on this stream
	owed      map[string]owed // may come though nothing about it has changed
}

// owed is what entitles a client to a resource that has not changed: each time it
// subscribed to it, and a cluster that uses it and came since it did (ORDER-4).
type owed struct {
	answers int
	warming bool
}

// news is what a resource, or its removal, is to a client.
type news int

const (
	again   news = iota // it has it already
	changed             // it has another one
	fresh               // it knows nothing of the name
)

// allows takes in that a name came, and tells whether it might. What comes changed
// while an answer is owed may or may not be that answer, so that it is owed still.
func allows(all map[string]owed, name string, n news) bool {
	o := all[name]
	ok := n != again || o.warming || o.answers > 0
	if n == fresh || n == again && !o.warming {
		o.answers--
	}
	o.warming = false
	if all[name] = o; o.answers <= 0 {
		delete(all, name)
	}
	return ok
}

type held struct {
	version string
	body    []byte
}

// heard is one response.
type heard struct {
	typeURL    cache.TypeURL
	nonce      string
	identifier string
	set        []string
	removed    []string
}

func (h heard) String() string {
	return fmt.Sprintf("%s %s +%v -%v", h.typeURL.Short(), h.nonce, h.set, h.removed)
}

// dial connects to a relay over plaintext, for as long as the test runs.
func dial(t testing.TB, target string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	opts = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64 << 20)),
	}, opts...)
	conn, err := grpc.NewClient(target, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// newDelta returns a client with a connection and no stream.
func newDelta(t testing.TB, target, name string, opts ...grpc.DialOption) *deltaClient {
	t.Helper()
	c := &deltaClient{record: record{name: name}, t: t, conn: dial(t, target, opts...), types: make(map[cache.TypeURL]*deltaType), rejected: make(map[cache.TypeURL]int)}
	t.Cleanup(c.Close)
	return c
}

// openDelta returns a client with a stream on which nothing is asked for yet.
func openDelta(t testing.TB, target, name string, opts ...grpc.DialOption) *deltaClient {
	t.Helper()
	c := newDelta(t, target, name, opts...)
	c.Open()
	return c
}

// Open opens a stream and restates on it what the client subscribes to, with the
// versions of what it holds.
func (c *deltaClient) Open() {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(c.conn).DeltaAggregatedResources(ctx)
	if err != nil {
		cancel()
		c.t.Fatalf("%s: %v", c.name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing && c.persistent {
		cancel()
		return // closed while it was coming back
	}
	c.stream, c.cancel, c.nonces = stream, cancel, make(map[string]bool)
	for _, u := range c.order {
		s := c.types[u]
		s.forgetStream()
		if !s.wildcard && len(s.names) == 0 {
			continue
		}
		req := &discovery.DeltaDiscoveryRequest{TypeUrl: string(u), InitialResourceVersions: make(map[string]string)}
		for name, h := range s.held {
			req.InitialResourceVersions[name] = h.version
		}
		if len(s.names) > 0 {
			req.ResourceNamesSubscribe = slices.Sorted(maps.Keys(s.names))
			if s.wildcard {
				req.ResourceNamesSubscribe = append(req.ResourceNamesSubscribe, "*")
			}
			maps.Copy(s.asked, s.names)
		}
		s.opening = s.wildcard
		c.send(s, req)
	}
	c.receiving.Go(func() { c.receive(stream) })
}

func (s *deltaType) forgetStream() {
	s.requested, s.opening = false, false
	s.asked, s.owed = make(map[string]bool), make(map[string]owed)
	// After a reconnect a name that is still missing is reported again.
	s.absent = make(map[string]bool)
}

// Close ends the stream, if there is one, as a client does that goes away.
func (c *deltaClient) Close() {
	c.mu.Lock()
	c.closing = true
	cancel := c.cancel
	c.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	c.receiving.Wait()
}

// Reconnect ends the stream and opens another one.
func (c *deltaClient) Reconnect() {
	c.t.Helper()
	c.Close()
	c.closing = false
	c.Open()
}

// MoveTo ends the stream and opens another one to another relay.
func (c *deltaClient) MoveTo(target string) {
	c.t.Helper()
	c.Close()
	c.conn = dial(c.t, target)
	c.closing = false
	c.Open()
}

// of is the state of a type; the caller holds the lock.
func (c *deltaClient) of(u cache.TypeURL) *deltaType {
	s := c.types[u]
	if s == nil {
		s = &deltaType{
			names: make(map[string]bool), held: make(map[string]held),
			errors: make(map[string]*discovery.ResourceError),
		}
		s.forgetStream()
		c.types[u] = s
		c.order = append(c.order, u)
	}
	return s
}

// send writes a request; the caller holds the lock. A stream that is gone says so
// to the receiver.
func (c *deltaClient) send(s *deltaType, req *discovery.DeltaDiscoveryRequest) {
	if !s.requested || req.GetNode() != nil {
		req.Node = &core.Node{Id: c.name, Cluster: c.cluster}
	}
	s.requested = true
	_ = c.stream.Send(req)
}

// Wildcard asks for everything of a type, by naming nothing where that is the
// type's first request.
func (c *deltaClient) Wildcard(u cache.TypeURL) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.of(u)
	req := &discovery.DeltaDiscoveryRequest{TypeUrl: string(u)}
	if s.requested {
		req.ResourceNamesSubscribe = []string{"*"}
		for name := range s.held {
			s.owe(name) // row j
		}
	}
	s.wildcard, s.opening = true, true
	c.send(s, req)
}

// Subscribe asks for names, whether they are subscribed already or not.
func (c *deltaClient) Subscribe(u cache.TypeURL, names ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subscribe(u, names)
}

func (c *deltaClient) subscribe(u cache.TypeURL, names []string) {
	s := c.of(u)
	for _, name := range names {
		s.names[name], s.asked[name] = true, true
		s.owe(name)
		delete(s.absent, name)
	}
	c.send(s, &discovery.DeltaDiscoveryRequest{TypeUrl: string(u), ResourceNamesSubscribe: names})
}

// Unsubscribe gives names up.
func (c *deltaClient) Unsubscribe(u cache.TypeURL, names ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unsubscribe(u, names)
}

func (c *deltaClient) unsubscribe(u cache.TypeURL, names []string) {
	s := c.of(u)
	for _, name := range names {
		delete(s.names, name)
		if s.wildcard {
			s.owe(name) // row l
		} else {
			delete(s.held, name)
		}
	}
	c.send(s, &discovery.DeltaDiscoveryRequest{TypeUrl: string(u), ResourceNamesUnsubscribe: names})
}

// receive takes in responses until the stream ends.
func (c *deltaClient) receive(stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient) {
	for {
		r, err := stream.Recv()
		if err != nil {
			c.mu.Lock()
			back := c.persistent && !c.closing && status.Code(err) == codes.Unavailable
			if !c.closing && !back {
				c.ends = append(c.ends, err)
			}
			c.mu.Unlock()
			if back {
				wait(comeBack)
				c.Open()
			}
			return
		}
		c.mu.Lock()
		c.take(r)
		c.mu.Unlock()
	}
}

// take checks a response, applies it and answers it.
func (c *deltaClient) take(r *discovery.DeltaDiscoveryResponse) {
	u := cache.TypeURL(r.GetTypeUrl())
	s := c.of(u)
	c.checkForm(s, r)

	if c.reject != nil {
		if why := c.reject(r); why != "" {
			c.rejected[u]++
			if u == cache.Cluster {
				for _, res := range r.GetResources() {
					c.owe(res.GetResource().GetValue())
				}
			}
			c.send(s, &discovery.DeltaDiscoveryRequest{
				TypeUrl: string(u), ResponseNonce: r.GetNonce(),
				ErrorDetail: &statuspb.Status{Code: 3, Message: why},
			})
			return
		}
	}
	h := heard{typeURL: u, nonce: r.GetNonce(), identifier: r.GetControlPlane().GetIdentifier(), removed: r.GetRemovedResources()}
	for _, res := range r.GetResources() {
		name := res.GetName()
		h.set = append(h.set, name)
		if !allows(s.owed, name, s.news(name, res.GetVersion())) {
			c.fault("%s %q came again unchanged, version %s, in response %s", u.Short(), name, res.GetVersion(), r.GetNonce())
		}
		s.held[name] = held{version: res.GetVersion(), body: res.GetResource().GetValue()}
		delete(s.absent, name)
		delete(s.errors, name)
		if u == cache.Cluster {
			c.owe(res.GetResource().GetValue())
		}
	}
	for _, name := range r.GetRemovedResources() {
		if !allows(s.owed, name, s.news(name, "")) {
			c.fault("%s %q was reported missing again, in response %s", u.Short(), name, r.GetNonce())
		}
		delete(s.held, name)
		s.absent[name] = true
	}
	for _, e := range r.GetResourceErrors() {
		s.errors[e.GetResourceName().GetName()] = e
	}
	c.heard = append(c.heard, h)
	if c.follow != nil && c.follow(r) {
		return
	}
	c.ack(u, r.GetNonce())
}

func (c *deltaClient) ack(u cache.TypeURL, nonce string) {
	c.send(c.of(u), &discovery.DeltaDiscoveryRequest{TypeUrl: string(u), ResponseNonce: nonce})
}

// checkForm checks what a response says apart from what the client holds.
func (c *deltaClient) checkForm(s *deltaType, r *discovery.DeltaDiscoveryResponse) {
	u := cache.TypeURL(r.GetTypeUrl())
	if c.nonces[r.GetNonce()] {
		c.fault("nonce %q came twice on one stream", r.GetNonce()) // DOWN-DELTA-3
	}
	c.nonces[r.GetNonce()] = true
	if !s.requested {
		c.fault("%s came, and was never asked for", u)
	}
	listed := make(map[string]bool)
	check := func(name string) {
		if listed[name] {
			c.fault("response %s lists %q twice", r.GetNonce(), name) // DOWN-DELTA-12
		}
		listed[name] = true
		if !s.wildcard && !s.asked[name] {
			if _, has := s.held[name]; !has {
				c.fault("%s %q came, and was never asked for", u.Short(), name)
			}
		}
	}
	for _, res := range r.GetResources() {
		check(res.GetName())
		if !strings.HasPrefix(res.GetVersion(), "1:") {
			c.fault("%q has version %q, which is not a fingerprint", res.GetName(), res.GetVersion()) // RECON-1
		}
	}
	for _, name := range r.GetRemovedResources() {
		check(name)
	}
	if len(listed) == 0 && len(r.GetResourceErrors()) == 0 && !s.opening {
		c.fault("response %s of %s says nothing", r.GetNonce(), u.Short()) // DOWN-DELTA-14
	}
	s.opening = false
}

// owe notes that the endpoints of a cluster that has just come may come again
// (ORDER-4).
func (c *deltaClient) owe(body []byte) {
	name, ok := edsNameIn(body)
	if !ok {
		return
	}
	eds := c.of(cache.Endpoint)
	if !eds.requested {
		return
	}
	o := eds.owed[name]
	o.warming = true
	eds.owed[name] = o
}

// news tells what a version of a name is to the client; "" stands for its removal.
func (s *deltaType) news(name, version string) news {
	h, has := s.held[name]
	switch {
	case has && h.version == version, !has && s.absent[name] && version == "":
		return again
	case has, s.absent[name]:
		return changed
	default:
		return fresh
	}
}

func (s *deltaType) owe(name string) {
	o := s.owed[name]
	o.answers++
	s.owed[name] = o
}

// Names are the names of what the client holds of a type, sorted.
func (c *deltaClient) Names(u cache.TypeURL) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.of(u).held))
}

// Has complains unless the client holds exactly these names of a type.
func (c *deltaClient) Has(u cache.TypeURL, names ...string) error {
	slices.Sort(names)
	if got := c.Names(u); !slices.Equal(got, names) {
		return fmt.Errorf("%s holds %s %.300q, not %.300q", c.name, u.Short(), got, names)
	}
	return nil
}

// Get is what the client holds under a name.
func (c *deltaClient) Get(u cache.TypeURL, name string) (h held, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, ok = c.of(u).held[name]
	return h, ok
}

// AtLeast complains unless the client holds a name at a revision or a later one.
func (c *deltaClient) AtLeast(u cache.TypeURL, name string, revision int) error {
	h, ok := c.Get(u, name)
	return atLeast(c.name, u, name, h, ok, revision)
}

func atLeast(client string, u cache.TypeURL, name string, h held, ok bool, revision int) error {
	if !ok {
		return fmt.Errorf("%s lacks %s %q", client, u.Short(), name)
	}
	got, err := revisionOf(u, h.body)
	if err == nil && got < revision {
		err = fmt.Errorf("%s holds %s %q at revision %d, not %d", client, u.Short(), name, got, revision)
	}
	return err
}

// Failed complains unless the client was told an error of a name, of this code.
func (c *deltaClient) Failed(u cache.TypeURL, name string, code codes.Code) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return is(fmt.Sprintf("%s's error of %s %q", c.name, u.Short(), name), codes.Code(c.of(u).errors[name].GetErrorDetail().GetCode()), code)
}

// Missing complains unless the client was told that a name does not exist.
func (c *deltaClient) Missing(u cache.TypeURL, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.of(u).absent[name] {
		return fmt.Errorf("%s was not told that %s %q is missing", c.name, u.Short(), name)
	}
	return nil
}

// NeverMissing complains if the client was ever told that a name is missing.
func (c *deltaClient) NeverMissing(u cache.TypeURL, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.heard {
		if h.typeURL == u && slices.Contains(h.removed, name) {
			return fmt.Errorf("%s was told that %s %q is missing", c.name, u.Short(), name)
		}
	}
	return nil
}

// Forget drops the record of what was heard so far.
func (c *deltaClient) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = nil
}

// HeardOnly complains unless everything heard since Forget, sorted and as +name
// for what came and -name for what went, is this.
func (c *deltaClient) HeardOnly(want ...string) error {
	got := []string{}
	for _, h := range c.Heard("") {
		for _, name := range h.set {
			got = append(got, h.typeURL.Short()+" +"+name)
		}
		for _, name := range h.removed {
			got = append(got, h.typeURL.Short()+" -"+name)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return fmt.Errorf("%s heard %q, not %q", c.name, got, want)
	}
	return nil
}

// Heard are the responses so far, of one type, or of all if it is empty.
func (c *deltaClient) Heard(u cache.TypeURL) []heard {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.heard), func(h heard) bool { return u != "" && h.typeURL != u })
}
