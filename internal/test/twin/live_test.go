package twin

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/internal/certs"
	"github.com/xds-relay/xds-relay/internal/relay"
	"github.com/xds-relay/xds-relay/internal/test/xdstest"
)

// liveRelay is a whole relay, to which the game's control plane and clients speak
// gRPC over in-memory connections, in a bubble of virtual time. Whenever the game has
// done something it waits until all is quiet, and then hears what was said.
//
// It cannot be held still, and a client that is deaf for the relay's gRPC (which takes
// more than these games say) is left to the tests of internal/relay.
//
// Several games can be played on one relay, each with the clients of one group, and with a
// world of its own for that group (live_groups_test.go, live_identity_test.go).
type liveRelay struct {
	*liveHost
	game    *Game
	group   int        // its number
	says    *core.Node // what its group says of itself to the control planes; nil: it is the only one
	clients map[int]*liveClient
	tickets map[int]tls.ClientSessionCache // of the clients' TLS sessions
}

// liveHost is what the games on one relay have in common.
type liveHost struct {
	settings   Settings
	company    company
	relays     []*liveRelay       // one for each game
	upstream   []*xdstest.Network // each control plane listens on one
	downstream *xdstest.Network   // the relay listens
	planes     []*grpc.Server
	dir        string // for the snapshot; "": none
	stop       func(spread time.Duration)

	mu      sync.Mutex
	streams map[int]*liveStream // of the control plane, open ones
	opened  int
	heard   []heard // since a game last listened
}

// heard is something that the relay said, and in which game.
type heard struct {
	of   *liveRelay
	at   time.Time
	side int
	tell func()
}

// On which side of the relay something is heard.
const (
	below = iota
	above
)

// liveStream is the control plane's end of a stream.
type liveStream struct {
	grpc.ServerStream
	plane int
	end   chan error
}

type liveClient struct {
	conn   *grpc.ClientConn
	cancel context.CancelFunc
	stream grpc.ClientStream
	closed bool // by the client; what comes is not heard any more. liveRelay.mu guards it.
}

// newLiveHost starts a relay on which games are played, one for each group.
func newLiveHost(games []*Game, s Settings, of company, dir string) *liveHost {
	h := &liveHost{settings: s, company: of, downstream: xdstest.NewNetwork(), dir: dir, streams: map[int]*liveStream{}}
	for i, g := range games {
		r := &liveRelay{liveHost: h, game: g, group: i, clients: map[int]*liveClient{}, tickets: map[int]tls.ClientSessionCache{}}
		if of.key != "" {
			r.says = h.groupNode(i)
		}
		h.relays = append(h.relays, r)
		for _, p := range g.planes {
			p.group = i
			p.between = time.Millisecond // what happens at one instant has no order here
			p.strict = false             // a whole relay asks for no less than a few thousand names at a time
		}
	}
	for i := range games[0].planes {
		network, server := xdstest.NewNetwork(), grpc.NewServer()
		discovery.RegisterAggregatedDiscoveryServiceServer(server, &liveService{h: h, plane: i})
		go func() { _ = server.Serve(network.Listener()) }() // ends with shutdown
		h.upstream, h.planes = append(h.upstream, network), append(h.planes, server)
	}
	h.start(h.downstream.Listener())
	return h
}

func (h *liveHost) start(listener net.Listener) {
	made, err := relay.New(h.config(), relay.Options{
		Dial: h.dial, Random: func() float64 { return 0.5 }, NoTrials: !h.settings.Bounded("trials"),
		Follow: certs.Options{NoNotify: true, Poll: time.Hour}, // what waits for the system is no part of the bubble
	})
	if err != nil {
		panic(err)
	}
	made.Serve(listener)
	h.stop = made.Close
}

func (h *liveHost) dial(ctx context.Context, address string) (net.Conn, error) {
	if address == xdstest.SecondAddress {
		return h.upstream[1].Dial(ctx, address)
	}
	return h.upstream[0].Dial(ctx, address)
}

// shutdown ends everything.
func (h *liveHost) shutdown() {
	h.leave()
	h.stop(0)
	h.hangUp()
	for _, server := range h.planes {
		server.Stop()
	}
	synctest.Wait()
}

// leave closes all clients.
func (h *liveHost) leave() {
	for _, r := range h.relays {
		for id := range r.clients {
			r.close(id)
		}
	}
}

// --- the relay ---

func (r *liveRelay) Now() time.Time { return time.Now() }

// Settle waits until all is quiet, and tells the games what was heard. At one instant
// the clients come first: what they are told the relay knew before it gave it up.
func (r *liveRelay) Settle() {
	for {
		synctest.Wait()
		r.mu.Lock()
		all := r.heard
		r.heard = nil
		r.mu.Unlock()
		if len(all) == 0 {
			return
		}
		slices.SortStableFunc(all, func(a, b heard) int {
			return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.side, b.side))
		})
		for _, h := range all {
			if !h.of.game.failed() { // else it is over
				h.tell()
			}
		}
	}
}

func (r *liveRelay) Wait(d time.Duration) {
	time.Sleep(d)
	r.Settle()
}

func (r *liveRelay) Room(bool) {}
func (r *liveRelay) Hold(bool) {}
func (r *liveRelay) Step(int)  { r.Settle() }

// Save does nothing: a relay that ends saves by itself, and none is killed.
func (r *liveRelay) Save()       {}
func (r *liveRelay) Kills() bool { return false }

// Restart ends the relay when the last of the games on it is ready for that.
func (r *liveRelay) Restart() {
	if r != r.relays[len(r.relays)-1] {
		return
	}
	r.hangUp()
	r.leave()
	r.stop(0)
	for _, network := range r.upstream {
		network.Drop() // what it has said to one that hangs is lost
	}
	synctest.Wait()
	r.mu.Lock()
	r.heard = nil
	r.mu.Unlock()
	r.start(r.downstream.Relisten())
	r.Settle()
}

// hear notes what was said; mu is held.
func (r *liveRelay) hear(side int, tell func()) {
	r.heard = append(r.heard, heard{r, time.Now(), side, tell})
}

// --- clients ---

func (r *liveRelay) Open(id int, sotw bool) {
	conn, err := grpc.NewClient("passthrough:///relay", grpc.WithTransportCredentials(r.credentials(id)),
		grpc.WithContextDialer(r.downstream.Dial))
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(r.pretend(context.Background(), id))
	c := &liveClient{conn: conn, cancel: cancel}
	r.clients[id] = c
	method, response := discovery.AggregatedDiscoveryService_DeltaAggregatedResources_FullMethodName, newDeltaResponse
	if sotw {
		method, response = discovery.AggregatedDiscoveryService_StreamAggregatedResources_FullMethodName, newResponse
	}
	c.stream, err = conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		panic(err)
	}
	go r.listen(id, c, response)
	r.Settle()
}

func newDeltaResponse() proto.Message { return new(discovery.DeltaDiscoveryResponse) }
func newResponse() proto.Message      { return new(discovery.DiscoveryResponse) }

// listen hears the relay out on a client's stream.
func (r *liveRelay) listen(id int, c *liveClient, response func() proto.Message) {
	for {
		m := response()
		err := c.stream.RecvMsg(m)
		at := time.Now()
		r.mu.Lock()
		switch {
		case c.closed:
			err = cmp.Or(err, io.EOF)
		case err != nil:
			r.hear(below, func() {
				if r.clients[id] == c {
					r.close(id)
					r.game.Ended(id, status.Code(err) == codes.Unavailable, err.Error(), at)
				}
			})
		default:
			r.hear(below, func() {
				if r.clients[id] == c {
					r.game.Told(id, m, at)
				}
			})
		}
		r.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (r *liveRelay) Ask(id int, m proto.Message) {
	if c := r.clients[id]; c != nil {
		if r.says != nil {
			m = r.introduced(id, m)
		}
		_ = c.stream.SendMsg(m) // an error is the stream's end, of which the listener hears
		r.Settle()
	}
}

func (r *liveRelay) Close(id int) {
	r.close(id)
	r.Settle()
}

func (r *liveRelay) close(id int) {
	c := r.clients[id]
	if c == nil {
		return
	}
	delete(r.clients, id)
	r.mu.Lock()
	c.closed = true
	r.mu.Unlock()
	c.cancel()
	_ = c.conn.Close() // fails only if it is closed already
}

func (r *liveRelay) Deaf(int, bool) {}

// --- the control plane ---

// liveService is its gRPC face.
type liveService struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	h     *liveHost
	plane int
}

func (s *liveService) DeltaAggregatedResources(stream grpc.BidiStreamingServer[discovery.DeltaDiscoveryRequest, discovery.DeltaDiscoveryResponse]) error {
	if s.h.settings.SotW != "" {
		return unimplemented
	}
	return s.serve(stream, false, func() proto.Message { return new(discovery.DeltaDiscoveryRequest) })
}

func (s *liveService) StreamAggregatedResources(stream grpc.BidiStreamingServer[discovery.DiscoveryRequest, discovery.DiscoveryResponse]) error {
	return s.serve(stream, true, func() proto.Message { return new(discovery.DiscoveryRequest) })
}

func (s *liveService) serve(stream grpc.ServerStream, sotw bool, request func() proto.Message) error {
	h, own := s.h, &liveStream{ServerStream: stream, plane: s.plane, end: make(chan error, 1)}
	md, _ := metadata.FromIncomingContext(stream.Context())
	probe := slices.Contains(md.Get(xdstest.StreamKindHeader), "probe")
	h.mu.Lock()
	h.opened++
	id := h.opened
	h.streams[id] = own
	open := func(r *liveRelay) {
		at := time.Now()
		r.hear(above, func() { r.game.StreamOpened(id, own.plane, probe, sotw, at) })
	}
	var r *liveRelay // whose group's it is; with several its first request says so
	if len(h.relays) == 1 {
		r = h.relays[0]
		open(r)
	}
	h.mu.Unlock()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for {
			req := request()
			err := stream.RecvMsg(req)
			at := time.Now()
			h.mu.Lock()
			is := h.streams[id] == own
			if r == nil && err == nil {
				if r = h.relayOf(req); is {
					open(r)
				}
			}
			switch {
			case is && err == nil:
				r.hear(above, func() { r.tell(id, func() { r.game.Asked(id, req, at) }) })
			case is && r != nil:
				delete(h.streams, id)
				r.hear(above, func() { r.tell(id, func() { r.game.StreamClosed(id, at) }) })
			case is:
				delete(h.streams, id)
			}
			h.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	select {
	case err := <-own.end:
		return err
	case <-gone:
		return nil
	}
}

// tell tells the game of a stream that it has not ended itself meanwhile.
func (r *liveRelay) tell(id int, what func()) {
	if slices.Contains(r.game.open, id) {
		what()
	}
}

func (r *liveRelay) Answer(id int, m proto.Message) {
	r.mu.Lock()
	s := r.streams[id]
	r.mu.Unlock()
	if s != nil {
		_ = s.SendMsg(m) // an error is the stream's end, of which its reader hears
	}
	r.Settle()
}

func (r *liveRelay) End(id int, how int) {
	r.end(id, endings[how])
	r.Settle()
}

func (r *liveRelay) end(id int, err error) {
	if err == io.EOF {
		err = nil
	}
	r.mu.Lock()
	s := r.streams[id]
	delete(r.streams, id)
	r.mu.Unlock()
	if s != nil {
		s.end <- err
	}
	r.tell(id, func() { r.game.StreamClosed(id, time.Now()) })
}

// hangUp ends all streams; nobody hears of it.
func (h *liveHost) hangUp() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, s := range h.streams {
		delete(h.streams, id)
		s.end <- endings[0]
	}
}

func (r *liveRelay) Down(plane int, down bool) {
	if !down {
		r.upstream[plane].Up()
		return
	}
	r.upstream[plane].Down()
	for _, id := range slices.Clone(r.game.open) {
		if p, _ := r.game.server(id); p.number == plane {
			r.end(id, endings[0])
		}
	}
	r.Settle()
}

func (r *liveRelay) Hang(plane int, hung bool) {
	if hung {
		r.upstream[plane].Hang()
		return
	}
	r.upstream[plane].Wake(synctest.Wait)
	r.Settle()
}

// --- games ---

// playLive plays scripts over gRPC, at the same time on one relay, each by a group of clients
// of its own.
func playLive(t *testing.T, scripts []Script, of company, trace func(string)) (violations []string) {
	dir, settings := "", scripts[0].Settings
	if settings.Snapshot {
		dir = t.TempDir()
	}
	synctest.Test(t, func(*testing.T) {
		var games []*Game
		for i := range scripts {
			tagged := trace
			if trace != nil {
				tagged = func(line string) { trace(fmt.Sprintf("%s [%d] %s", time.Now().Format("04:05.000"), i, line)) }
			}
			g := newGame(settings, tagged)
			g.checker.live = true
			games = append(games, g)
		}
		h := newLiveHost(games, settings, of, dir)
		defer h.shutdown()
		violations = h.play(scripts)
	})
	return violations
}

// TestLive plays the games over gRPC: some, or as many operations as the environment
// says in TWIN_LIVE_STEPS, from the seed in TWIN_SEED. Every other one is played by a few
// groups at once, which clients belong to by their node, or by what their certificates prove.
func TestLive(t *testing.T) {
	steps, seed := number("TWIN_LIVE_STEPS", 2000), number("TWIN_SEED", 1)
	papers, played, began := newPapers(t), 0, time.Now()
	for ; played < steps; seed++ {
		scripts, of := []Script{draw(rand.New(rand.NewPCG(uint64(seed), 0)))}, company{}
		for group := 1; group <= seed%2*(1+seed%4/2); group++ {
			scripts = append(scripts, draw(rand.New(rand.NewPCG(uint64(seed), uint64(group)))))
		}
		if len(scripts) > 1 {
			of = drawCompany(rand.New(rand.NewPCG(uint64(seed), 1000)), papers, scripts)
		}
		for _, s := range scripts {
			played += len(s.Ops)
		}
		violations := playLive(t, scripts, of, nil)
		if len(violations) == 0 {
			continue
		}
		for i := range scripts {
			scripts[i] = shorten(scripts[i], violations, func(s Script) []string {
				tried := slices.Clone(scripts)
				tried[i].Ops = s.Ops
				return playLive(t, tried, of, nil)
			})
		}
		var trace strings.Builder
		violations = playLive(t, scripts, of, func(line string) { fmt.Fprintln(&trace, line) })
		t.Fatalf("seed %d: %s\n\nthe scripts, one a group%v:\n%s\nwhat happened:\n%s", seed, strings.Join(violations, "\n"), of, scripts, &trace)
	}
	t.Logf("%d operations, %.0f a second", played, float64(played)/time.Since(began).Seconds())
}
