package twin

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/internal/relay"
	"github.com/xds-relay/xds-relay/internal/xdstest"
)

// liveRelay is a whole relay, to which the game's control plane and clients speak
// gRPC over in-memory connections, in a bubble of virtual time. Whenever the game has
// done something it waits until all is quiet, and then hears what was said.
//
// It cannot be held still, and a client that is deaf for the relay's gRPC (which takes
// more than these games say) is left to the tests of internal/relay.
type liveRelay struct {
	game       *Game
	settings   Settings
	upstream   []*xdstest.Network // each control plane listens on one
	downstream *xdstest.Network   // the relay listens
	planes     []*grpc.Server
	dir        string // for the snapshot; "": none
	stop       func()
	clients    map[int]*liveClient

	mu      sync.Mutex
	streams map[int]*liveStream // of the control plane, open ones
	opened  int
	heard   []heard // since the game last listened
}

// heard is something that the relay said.
type heard struct {
	at       time.Time
	upstream bool
	tell     func()
}

// liveStream is the control plane's end of a stream.
type liveStream struct {
	grpc.ServerStream
	plane int
	end   chan error
}

type liveClient struct {
	conn   *grpc.ClientConn
	cancel context.CancelFunc
	send   func(proto.Message) error
	closed bool // by the client; what comes is not heard any more. liveRelay.mu guards it.
}

func newLiveRelay(g *Game, s Settings, dir string) *liveRelay {
	r := &liveRelay{
		game: g, settings: s, downstream: xdstest.NewNetwork(), dir: dir, clients: map[int]*liveClient{}, streams: map[int]*liveStream{},
	}
	for i := range g.planes {
		network, server := xdstest.NewNetwork(), grpc.NewServer()
		discovery.RegisterAggregatedDiscoveryServiceServer(server, &liveService{r: r, plane: i})
		go func() { _ = server.Serve(network.Listener()) }() // ends with shutdown
		r.upstream, r.planes = append(r.upstream, network), append(r.planes, server)
	}
	r.start(r.downstream.Listener())
	return r
}

func (r *liveRelay) start(listener net.Listener) {
	c := *configure(r.settings)
	c.Cache.Snapshot.Dir = r.dir
	made, err := relay.New(&c, relay.Options{Dial: r.dial, Random: func() float64 { return 0.5 }})
	if err != nil {
		panic(err)
	}
	made.Serve(listener)
	r.stop = func() { made.Close(0) }
}

func (r *liveRelay) dial(ctx context.Context, address string) (net.Conn, error) {
	if address == xdstest.SecondAddress {
		return r.upstream[1].Dial(ctx, address)
	}
	return r.upstream[0].Dial(ctx, address)
}

// shutdown ends everything.
func (r *liveRelay) shutdown() {
	for id := range r.clients {
		r.close(id)
	}
	r.stop()
	r.hangUp()
	for _, server := range r.planes {
		server.Stop()
	}
	synctest.Wait()
}

// --- the relay ---

func (r *liveRelay) Now() time.Time { return time.Now() }

// Settle waits until all is quiet, and tells the game what was heard. At one instant
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
			return cmp.Or(a.at.Compare(b.at), cmp.Compare(order(a.upstream), order(b.upstream)))
		})
		for _, h := range all {
			if h.tell(); r.game.failed() {
				return
			}
		}
	}
}

func order(upstream bool) int {
	if upstream {
		return 1
	}
	return 0
}

func (r *liveRelay) Wait(d time.Duration) {
	time.Sleep(d)
	r.Settle()
}

func (r *liveRelay) Hold(bool) {}
func (r *liveRelay) Step(int)  { r.Settle() }

// Save does nothing: a relay that ends saves by itself, and none is killed.
func (r *liveRelay) Save()       {}
func (r *liveRelay) Kills() bool { return false }

func (r *liveRelay) Restart() {
	r.hangUp()
	for id := range r.clients {
		r.close(id)
	}
	r.stop()
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
func (r *liveRelay) hear(upstream bool, tell func()) {
	r.heard = append(r.heard, heard{time.Now(), upstream, tell})
}

// --- clients ---

func (r *liveRelay) Open(id int, sotw bool) {
	conn, err := grpc.NewClient("passthrough:///relay", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(r.downstream.Dial))
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &liveClient{conn: conn, cancel: cancel}
	r.clients[id] = c
	ads := discovery.NewAggregatedDiscoveryServiceClient(conn)
	var receive func() (proto.Message, error)
	if sotw {
		stream, err := ads.StreamAggregatedResources(ctx)
		if err != nil {
			panic(err)
		}
		c.send = func(m proto.Message) error { return stream.Send(m.(*discovery.DiscoveryRequest)) }
		receive = func() (proto.Message, error) { return stream.Recv() }
	} else {
		stream, err := ads.DeltaAggregatedResources(ctx)
		if err != nil {
			panic(err)
		}
		c.send = func(m proto.Message) error { return stream.Send(m.(*discovery.DeltaDiscoveryRequest)) }
		receive = func() (proto.Message, error) { return stream.Recv() }
	}
	go r.listen(id, c, receive)
	r.Settle()
}

// listen hears the relay out on a client's stream.
func (r *liveRelay) listen(id int, c *liveClient, receive func() (proto.Message, error)) {
	for {
		m, err := receive()
		at := time.Now()
		r.mu.Lock()
		switch {
		case c.closed:
			err = cmp.Or(err, io.EOF)
		case err != nil:
			r.hear(false, func() {
				if r.clients[id] == c {
					r.close(id)
					r.game.Ended(id, status.Code(err) == codes.Unavailable, err.Error(), at)
				}
			})
		default:
			r.hear(false, func() {
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
		_ = c.send(m) // an error is the stream's end, of which the listener hears
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
	r     *liveRelay
	plane int
}

func (s *liveService) DeltaAggregatedResources(stream grpc.BidiStreamingServer[discovery.DeltaDiscoveryRequest, discovery.DeltaDiscoveryResponse]) error {
	if s.r.settings.SotW != "" {
		return unimplemented
	}
	return s.serve(stream, false, func() proto.Message { return new(discovery.DeltaDiscoveryRequest) })
}

func (s *liveService) StreamAggregatedResources(stream grpc.BidiStreamingServer[discovery.DiscoveryRequest, discovery.DiscoveryResponse]) error {
	return s.serve(stream, true, func() proto.Message { return new(discovery.DiscoveryRequest) })
}

func (s *liveService) serve(stream grpc.ServerStream, sotw bool, request func() proto.Message) error {
	r, own := s.r, &liveStream{ServerStream: stream, plane: s.plane, end: make(chan error, 1)}
	md, _ := metadata.FromIncomingContext(stream.Context())
	probe := slices.Contains(md.Get(xdstest.StreamKindHeader), "probe")
	r.mu.Lock()
	r.opened++
	id, at := r.opened, time.Now()
	r.streams[id] = own
	r.hear(true, func() { r.game.StreamOpened(id, own.plane, probe, sotw, at) })
	r.mu.Unlock()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for {
			req := request()
			err := stream.RecvMsg(req)
			at := time.Now()
			r.mu.Lock()
			open := r.streams[id] == own
			if open && err == nil {
				r.hear(true, func() { r.tell(id, func() { r.game.Asked(id, req, at) }) })
			} else if open {
				delete(r.streams, id)
				r.hear(true, func() { r.tell(id, func() { r.game.StreamClosed(id, at) }) })
			}
			r.mu.Unlock()
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
func (r *liveRelay) hangUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, s := range r.streams {
		delete(r.streams, id)
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

// playLive plays a script over gRPC.
func playLive(t *testing.T, s Script, trace func(string), excused *tally) (violations []string) {
	dir := ""
	if s.Settings.Snapshot {
		dir = t.TempDir()
	}
	synctest.Test(t, func(*testing.T) {
		g := newGame(s.Settings, trace)
		r := newLiveRelay(g, s.Settings, dir)
		defer r.shutdown()
		violations = g.Play(r, s.Ops)
		excused.add(g.checker)
	})
	return violations
}

// TestLive plays the games over gRPC: some, or as many operations as the environment
// says in TWIN_LIVE_STEPS, from the seed in TWIN_SEED.
func TestLive(t *testing.T) {
	steps, seed := 2000, 1
	if s := os.Getenv("TWIN_LIVE_STEPS"); s != "" {
		steps, _ = strconv.Atoi(s)
	}
	if s := os.Getenv("TWIN_SEED"); s != "" {
		seed, _ = strconv.Atoi(s)
	}
	played, began := 0, time.Now()
	var excused tally
	for ; played < steps; seed++ {
		s := draw(rand.New(rand.NewPCG(uint64(seed), 0)))
		played += len(s.Ops)
		violations := playLive(t, s, nil, &excused)
		if len(violations) == 0 {
			continue
		}
		s = shorten(s, violations, func(s Script) []string { return playLive(t, s, nil, new(tally)) })
		var trace strings.Builder
		violations = playLive(t, s, func(line string) { fmt.Fprintln(&trace, line) }, new(tally))
		t.Fatalf("seed %d: %s\n\nthe script:\n%s\nwhat happened:\n%s", seed, strings.Join(violations, "\n"), s, &trace)
	}
	t.Logf("%d operations, %.0f a second", played, float64(played)/time.Since(began).Seconds())
	t.Log(excused.String())
}
