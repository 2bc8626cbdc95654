package downstream

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/events"
	"github.com/xds-relay/xds-relay/internal/share"
)

// ServerConfig is the configuration of a Server. [Server.Reconfigure] says which parts of it may
// change.
type ServerConfig struct {
	session.Config
	// Groups decides which group serves a client.
	Groups session.Groups
	// Credentials are for TLS, or insecure.
	Credentials credentials.TransportCredentials
	// MaxRequest bounds a request in bytes, MaxStreams the streams of a connection, and
	// FirstMessage the time until a stream's first request; zero means no bound (VALID-8).
	MaxRequest   int
	MaxStreams   uint32
	FirstMessage time.Duration
	// MaxInflight bounds the bytes of memory that requests take which are not complete, or not taken in
	// yet, over all connections; one of them may take half of it. Zero means no bound (VALID-8).
	MaxInflight int
	Offers
	// RequestRate bounds the requests of a stream per second, after RequestBurst at once; zero
	// means no bound.
	RequestRate, RequestBurst int
	// StallTimeout is how long a send may wait for the client; zero means for ever.
	StallTimeout time.Duration
	// MaxConnections bounds the connections, streams or none; zero means no bound.
	// MoreConnections says in the log what to do if they are too few.
	MaxConnections  int
	MoreConnections string
	// MaxStreamsOfAll bounds the streams of all clients, and MaxNamesOfAll the names that they subscribe
	// to; zero means no bound.
	MaxStreamsOfAll, MaxNamesOfAll int
	// Pressed says that memory is short, so that no new streams are taken; it may be nil.
	Pressed func() bool
	// Connection bounds each connection.
	Connection ConnectionBounds
	// REST is for clients that poll.
	REST RESTConfig
	// Log is for people; Observer may be nil.
	Log      *slog.Logger
	Observer Observer
	// Tracer follows updates to the clients; nil means that nobody traces.
	Tracer Tracer
	// Events receives events about clients, also about those that are not in step for StaleAfter; with zero it
	// receives none about these. Watch shows requests and responses. Both may be nil.
	Events     *events.Ring
	StaleAfter time.Duration
	Watch      *events.Watch
}

// Offers are what clients may use beyond the plain form of the current API.
type Offers struct {
	AcceptGzip bool // compressed requests are taken in; MaxRequest bounds what they are inflated to
	Gzip       bool // what streams are sent whose clients accept it is compressed
	V2         bool // the services of the v2 API are there, too (V2-1)
}

// ConnectionBounds are what a connection may do.
type ConnectionBounds struct {
	MaxAge  time.Duration // how old it may become; zero means no limit
	MinPing time.Duration // the least time between two pings of the client; zero means 5 s
}

// Server serves clients. Its methods may be called from any goroutine.
type Server struct {
	config            ServerConfig                 // as it was at the start
	now               atomic.Pointer[ServerConfig] // as it is now; see Reconfigure
	log               *slog.Logger
	observer          Observer
	grpc              *grpc.Server
	health            *health.Server
	clusterDeliveries *session.ClusterDeliveries
	senders           *senders
	deflated          deflated
	doors             *doors
	reading           *reading
	names             names
	rules             atomic.Uint64 // how often rules have changed
	full              seldom        // what is said when there is no room, or somebody has to wait
	passing           passing
	rest              *rest

	mu       sync.Mutex
	streams  map[uint64]*stream
	places   share.Ledger[served]
	lastID   uint64
	calls    int // unary calls in progress, and calls that go through
	draining bool
	stopping bool
	stopped  chan struct{} // closed when stopping begins
}

// The bounds that have no setting.
const (
	// maxHeaders bounds a stream's request headers; gRPC's default is 16 MiB.
	maxHeaders = 16 << 10
	// window is the HTTP/2 window of a stream and of a connection, for requests. It is fixed,
	// since estimating it costs a ping for every ACK.
	window = 64 << 10
	// readBuffer is how many bytes a connection reads at once. ACKs are small. With TLS each
	// connection keeps a buffer of this size, and the garbage collector lets the heap grow by as
	// much again.
	readBuffer = 4 << 10
	// How a dead client is noticed.
	keepaliveTime    = 30 * time.Second
	keepaliveTimeout = 10 * time.Second
	// handshakeLimit is how long a connection may take until it speaks HTTP/2, TLS included. It
	// may not have sent a byte by then.
	handshakeLimit = 10 * time.Second
)

// NewServer returns a Server that listens nowhere yet.
func NewServer(c ServerConfig) *Server {
	s := &Server{
		config: c, log: c.Log, observer: cmp.Or[Observer](c.Observer, nobody{}),
		health:            health.NewServer(),
		clusterDeliveries: session.NewClusterDeliveries(),
		streams:           make(map[uint64]*stream),
		stopped:           make(chan struct{}),
		senders:           newSenders(runtime.GOMAXPROCS(0)),
		passing:           passing{calls: make(map[*passed]bool), places: make(map[string]*share.Ledger[served])},
	}
	if s.config.Random == nil {
		s.config.Random = rand.Float64
	}
	s.now.Store(&s.config)
	s.names.init(s.now.Load, runtime.GOMAXPROCS(0))
	s.reading = newReading(c.MaxInflight, s.log, s.observer)
	s.doors = newDoors(s.now.Load, s.log, s.observer, s.reading)
	s.grpc = grpc.NewServer(
		grpc.Creds(tagging{c.Credentials}),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.ConnectionTimeout(handshakeLimit),
		grpc.MaxRecvMsgSize(min(2*c.MaxRequest, math.MaxInt32)), // see inbox
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxConcurrentStreams(c.MaxStreams),
		grpc.InTapHandle(s.tap),
		grpc.UnknownServiceHandler(s.pass),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.InitialWindowSize(window),
		grpc.InitialConnWindowSize(window),
		grpc.ReadBufferSize(readBuffer),
		grpc.KeepaliveParams(ageLimit(keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}, c.Connection.MaxAge)),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: cmp.Or(c.Connection.MinPing, 5*time.Second), PermitWithoutStream: true}),
	)
	s.registerServices()
	s.offerHealth()
	s.rest = newREST(s)
	s.SetReady(false)
	return s
}

// Serve accepts clients on a listener until Close.
func (s *Server) Serve(l net.Listener) error { return s.grpc.Serve(s.doors.add(l)) }

// SetReady sets the answer to gRPC health checks.
func (s *Server) SetReady(ready bool) {
	state := healthpb.HealthCheckResponse_NOT_SERVING
	if ready {
		state = healthpb.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", state)
	s.health.SetServingStatus("envoy.service.discovery.v3.AggregatedDiscoveryService", state)
	if s.config.V2 {
		s.health.SetServingStatus("envoy.service.discovery.v2.AggregatedDiscoveryService", state)
	}
}

// Close stops listening first, then tells every connection to take its next stream elsewhere
// (GOAWAY), and ends the open streams with UNAVAILABLE, in random order and spread over a time,
// so that clients do not come back all at once (ERR-14). It returns when all handlers have
// returned.
func (s *Server) Close(spread time.Duration) {
	s.health.Shutdown()
	graceful := make(chan struct{})
	go func() {
		defer close(graceful)
		s.grpc.GracefulStop() // this returns when all streams have ended, or at Stop
	}()
	s.rest.stopAccepting()
	s.doors.close() // a client that is sent away must not come back to a port that still answers
	s.mu.Lock()
	if !s.stopping {
		s.stopping = true
		close(s.stopped)
	}
	s.mu.Unlock()
	s.sendOff(context.Background(), spread, shuttingDown())
	s.awaitStreams(time.Second)
	select {
	case <-graceful: // everything that was written has gone out
	case <-time.After(time.Second):
		s.grpc.Stop()
		<-graceful
	}
	s.rest.close(time.Second)
	s.senders.close()
	s.reading.stop()
}

// Still returns what has not moved since the last call, for a watchdog, or "". It does not return
// while a lock is stuck that every stream needs.
func (s *Server) Still() string {
	s.busy()
	if s.senders.stuck() {
		return "streams wait for a sender, and none is taken"
	}
	return ""
}

// awaitStreams gives the handlers of ended streams a moment to return.
func (s *Server) awaitStreams(limit time.Duration) {
	for deadline := time.Now().Add(limit); s.busy() && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
}

// register takes in a stream, if there is room for it.
func (s *Server) register(st *stream) (end *session.End) {
	var displaced []served
	defer func() { displace(displaced) }() // after the lock is released
	if end := s.refuses(st.conn, st.since); end != nil {
		return end
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if end := s.leaving(); end != nil {
		return end
	}
	if st.place, displaced, end = s.takePlace(&st.peer, st); end != nil {
		return end
	}
	s.lastID++
	st.id = s.lastID
	st.follow = s.follow(st) // before the stream is visible: Reconfigure makes it look for something to send
	s.streams[st.id] = st
	if st.conn != nil {
		st.conn.streams++
	}
	return nil
}

func (s *Server) unregister(st *stream) {
	s.mu.Lock()
	delete(s.streams, st.id)
	s.places.Leave(st.place)
	if st.conn != nil {
		st.conn.streams--
	}
	s.mu.Unlock()
}

func (s *Server) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)+s.calls > 0
}

// Count returns the number of open streams, and of clients that poll.
func (s *Server) Count() int { return len(s.open()) + len(s.rest.pollers.list()) }

// Clients describes the open streams and the clients that poll, oldest first.
func (s *Server) Clients() []Client {
	streams := s.open()
	clients := make([]Client, 0, len(streams))
	for _, st := range streams {
		clients = append(clients, st.describe())
	}
	for _, p := range s.rest.pollers.list() {
		clients = append(clients, s.rest.pollers.describe(p))
	}
	slices.SortFunc(clients, func(a, b Client) int { return cmp.Compare(a.Stream, b.Stream) })
	return clients
}
