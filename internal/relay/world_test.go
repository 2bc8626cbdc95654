package relay

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/certs"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/events"
	"github.com/xds-relay/xds-relay/internal/test/xdstest"
	"github.com/xds-relay/xds-relay/upstream"
	upsession "github.com/xds-relay/xds-relay/upstream/session"
)

// world is a relay between a control plane and clients, over gRPC, in a bubble where
// an hour takes no time.
type world struct {
	t         *testing.T
	up        *xdstest.Network
	down      *xdstest.Network
	plane     *xdstest.ControlPlane
	relay     *Relay
	dials     atomic.Int32 // by clients
	seen      sightings
	seenAbove above
	converged convergences
	watch     *events.Watch

	said      int // responses of the control plane
	published []publication
	conns     []*grpc.ClientConn
	clients   sync.WaitGroup
}

// publication is a version of the one resource that most tests follow.
type publication struct {
	version string
	at      time.Time
}

// inWorld runs f in a bubble, with a relay that is configured by set and has a
// stream upstream once a client has asked for something.
func inWorld(t *testing.T, set []string, f func(w *world)) {
	t.Helper()
	inWorldThat(t, set, nil, f)
}

// inWorldThat is inWorld with a relay that logs somewhere.
func inWorldThat(t *testing.T, set []string, log *slog.Logger, f func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		c, err := config.Load("", slices.Concat([]string{"upstream.coalesce_window=0s", "timers.settle=0s"}, set))
		if err != nil {
			t.Fatal(err)
		}
		w := &world{t: t, up: xdstest.NewNetwork(), down: xdstest.NewNetwork(), watch: events.NewWatch()}
		w.seen.ended = make(map[session.Reason]int)
		w.plane = xdstest.NewControlPlane(w.up.Listener())
		if w.relay, err = New(c, Options{Dial: w.up.Dial, Log: log, Downstream: &w.seen, Upstream: &w.seenAbove, Convergence: &w.converged, Watch: w.watch, Follow: certs.Options{NoNotify: true}}); err != nil {
			t.Fatal(err)
		}
		w.relay.Serve(w.down.Listener())
		f(w)
		for _, conn := range w.conns {
			conn.Close()
		}
		w.clients.Wait()
		w.relay.Close(0)
		w.plane.Stop()
	})
}

// respond makes the control plane say something, on its one stream.
func (w *world) respond(format string, args ...any) {
	w.t.Helper()
	w.said++
	words := fmt.Sprintf(format, args...)
	kind, rest, _ := strings.Cut(words, " ")
	if err := w.plane.Say("up", xdstest.MustParse("up", fmt.Sprintf("resp %s nonce=u%d %s", kind, w.said, rest))); err != nil {
		w.t.Fatal(err)
	}
	_, _ = w.plane.Heard()
}

// publish gives the cluster a its next version.
func (w *world) publish() {
	w.t.Helper()
	label := fmt.Sprint(len(w.published) + 1)
	w.published = append(w.published, publication{versionOf(w.t, cache.Cluster, "a@"+label), time.Now()})
	w.respond("CDS a@%s", label)
}

// versionOf is the version under which clients get a resource.
func versionOf(t *testing.T, typ cache.TypeURL, text string) string {
	t.Helper()
	r, err := xdstest.ParseResource(text)
	if err != nil {
		t.Fatal(err)
	}
	body, err := r.Body(string(typ))
	if err != nil {
		t.Fatal(err)
	}
	return cache.Fingerprint{}.Of(body.GetTypeUrl(), body.GetValue(), nil)
}

// dial connects a client, whose window is as small as gRPC has it.
func (w *world) dial() *grpc.ClientConn {
	w.t.Helper()
	conn, err := grpc.NewClient("passthrough:///relay", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(1<<20),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			w.dials.Add(1)
			return w.down.Dial(ctx, "")
		}))
	if err != nil {
		w.t.Fatal(err)
	}
	w.conns = append(w.conns, conn)
	return conn
}

// client is a Delta ADS client that takes in and accepts whatever comes.
type client struct {
	stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	opened time.Time

	mu        sync.Mutex
	versions  map[string]string
	errors    map[string]int32
	removed   []string  // since it was last looked at
	heard     time.Time // the last response
	responses int
	nonce     string
	err       error // how the stream ended,
	ended     time.Time
}

// open opens a stream, and listens on it unless deaf.
func (w *world) open(conn *grpc.ClientConn, node string, deaf bool) *client {
	w.t.Helper()
	c, err := openStream(conn, node)
	if err != nil {
		w.t.Fatal(err)
	}
	if !deaf {
		w.clients.Go(c.listen)
	}
	return c
}

// openWith opens a stream with headers, and listens on it.
func (w *world) openWith(conn *grpc.ClientConn, node string, headers ...string) *client {
	w.t.Helper()
	c, err := openStream(conn, node, headers...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.clients.Go(c.listen)
	return c
}

// openNamed opens a stream that subscribes to names alone.
func (w *world) openNamed(node string, t cache.TypeURL, names ...string) *client {
	w.t.Helper()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(w.dial()).DeltaAggregatedResources(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	c := &client{stream: stream, versions: make(map[string]string), errors: make(map[string]int32)}
	c.send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: node}, TypeUrl: string(t), ResourceNamesSubscribe: names})
	w.clients.Go(c.listen)
	return c
}

// openStream opens a stream and asks for all clusters.
func openStream(conn *grpc.ClientConn, node string, headers ...string) (*client, error) {
	ctx := metadata.AppendToOutgoingContext(context.Background(), headers...)
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return nil, err
	}
	c := &client{stream: stream, opened: time.Now(), versions: make(map[string]string), errors: make(map[string]int32)}
	c.send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: node}, TypeUrl: string(cache.Cluster)})
	return c, nil
}

func (c *client) send(req *discovery.DeltaDiscoveryRequest) {
	_ = c.stream.Send(req) // the end of the stream is heard by listen
}

func (c *client) listen() {
	for c.hear() {
	}
}

// hear takes in one response; it reports whether there was one.
func (c *client) hear() bool {
	resp, err := c.stream.Recv()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.err, c.ended = err, time.Now()
		return false
	}
	for _, r := range resp.GetResources() {
		c.versions[r.GetName()] = r.GetVersion()
		delete(c.errors, r.GetName())
	}
	for _, name := range resp.GetRemovedResources() {
		delete(c.versions, name)
		c.removed = append(c.removed, name)
	}
	for _, e := range resp.GetResourceErrors() {
		c.errors[e.GetResourceName().GetName()] = e.GetErrorDetail().GetCode()
	}
	c.heard, c.nonce = time.Now(), resp.GetNonce()
	c.responses++
	c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce()})
	return true
}

// see looks at a client under its lock.
func (c *client) see(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// gone is what was removed since the last call, in order.
func (c *client) gone() (names []string) {
	c.see(func() { names, c.removed = slices.Sorted(slices.Values(c.removed)), nil })
	return names
}

func (c *client) version(name string) (v string) {
	c.see(func() { v = c.versions[name] })
	return v
}

func (c *client) over() (at time.Time, err error) {
	c.see(func() { err, at = c.err, c.ended })
	return at, err
}

// sightings counts what the relay says of its streams.
type sightings struct {
	downstream.Observer

	mu                       sync.Mutex
	ended                    map[session.Reason]int
	stalled, limited, panics int
	readingWaits             int
	subscribes               int
	panicOn                  string // the method in which to panic, once
}

func (s *sightings) count(method string, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	if method != "" && s.panicOn == method {
		s.panicOn = ""
		panic("told to, in " + method)
	}
}

func (s *sightings) ClientNamesRefused(session.Reason, int) {}
func (s *sightings) ClientPoll(cache.TypeURL, int)          {}
func (s *sightings) ClientConnected(string)                 {}
func (s *sightings) ClientDisconnected(_ string, reason session.Reason) {
	s.count("disconnected", func() { s.ended[reason]++ })
}
func (s *sightings) ClientRequest(_ cache.TypeURL, kind session.RequestKind) {
	s.count("request", func() {
		if kind == session.SubscribeRequest {
			s.subscribes++
		}
	})
}
func (s *sightings) ClientResponse(cache.TypeURL, int, int, int)             { s.count("response", func() {}) }
func (s *sightings) ClientAck(cache.TypeURL, time.Duration)                  { s.count("ack", func() {}) }
func (s *sightings) ClientPropagation(cache.TypeURL, time.Duration, string)  {}
func (s *sightings) ClientPanic()                                            { s.count("panic", func() { s.panics++ }) }
func (s *sightings) ClientStalled()                                          { s.count("stalled", func() { s.stalled++ }) }
func (s *sightings) ClientReadingWaits()                                     { s.count("waits", func() { s.readingWaits++ }) }
func (s *sightings) ClientRateLimited()                                      { s.count("limited", func() { s.limited++ }) }
func (s *sightings) ClientOversized(cache.TypeURL, downstream.OversizedKind) {}
func (s *sightings) ClientTypeRefused(cache.TypeURL, session.Reason, session.Notice) {
}

// asked is how many requests asked for something.
func (s *sightings) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.subscribes
}

// endings is how many streams ended for a reason.
func (s *sightings) endings(reason session.Reason) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended[reason]
}

// above counts what the relay says of its streams upstream.
type above struct {
	upstream.Observer

	panicNow atomic.Bool // at the next response, once
	panics   atomic.Int32
	unasked  atomic.Int64                  // resources
	hold     atomic.Pointer[chan struct{}] // until it is closed, the loop that lets resources expire stands still
}

func (*above) UpstreamConnected(upstream.Stream, bool)                 {}
func (*above) UpstreamReconnect(upsession.Role, string, time.Duration) {}
func (*above) UpstreamNack(cache.TypeURL)                              {}
func (*above) UpstreamConnection(string, bool)                         {}
func (*above) UpstreamCheck(string, upsession.CheckResult)             {}
func (*above) UpstreamLeftOut(cache.TypeURL, int)                      {}
func (*above) UpstreamQuarantine(cache.TypeURL, bool)                  {}

func (a *above) ResourcesExpired(cache.TypeURL, int) {
	if hold := a.hold.Load(); hold != nil {
		<-*hold
	}
}

func (a *above) UpstreamUnasked(_ cache.TypeURL, n int) { a.unasked.Add(int64(n)) }

func (a *above) UpstreamResponse(cache.TypeURL, int, int) {
	if a.panicNow.Swap(false) {
		panic("told to")
	}
}

func (a *above) UpstreamDropped(reason string) {
	if reason == "panic" {
		a.panics.Add(1)
	}
}
