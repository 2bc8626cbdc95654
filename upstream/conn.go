package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/encoding/gzip" // a relay above may compress; see downstream.gzip
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/internal/events"
	"github.com/xds-relay/xds-relay/internal/header"
	"github.com/xds-relay/xds-relay/internal/hint"
	"github.com/xds-relay/xds-relay/internal/proxy"
)

// Endpoint is how to reach the control plane.
type Endpoint struct {
	// Name tells it from the others, in logs and metrics.
	Name string
	// Target is a gRPC target, such as "127.0.0.1:15010" or "dns:///istiod:15012".
	Target string
	// Credentials are TLS's, or insecure ones; Security is what hints need to know of TLS, nil for
	// plaintext, and Section where all this is configured, "upstream" if it is empty.
	Credentials credentials.TransportCredentials
	Security    *hint.TLS
	Section     string
	// MaxReceive bounds one response, in bytes (UP-12).
	MaxReceive int
	// Keepalive is the interval of HTTP/2 pings; zero: none (UP-13).
	Keepalive time.Duration
	// Missing is the does-not-exist timeout, which a dead connection must not outlive (UP-13).
	Missing time.Duration
	// MaxConnections, and MaxStreams of each, bound what is opened; a stream may look
	// for room there for as long as RoomWithin, which is less than
	// Config.UnavailableAfter (UP-1). Zero: 64, 100 and 4 s.
	MaxConnections, MaxStreams int
	RoomWithin                 time.Duration
	// Headers are the relay's own for the next stream, or why there is none; nil: none
	// are wanted (NODE-13).
	Headers func() ([]header.Header, error)
	// Dial, if set, replaces the network.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Log and Observer, if set, are told what concerns all groups.
	Log      *slog.Logger
	Observer Observer
	// Events receives events about the endpoint; nil: nobody does.
	Events *events.Ring
}

// ConnectTimeout is how long one attempt to connect may take.
const ConnectTimeout = 10 * time.Second

// explained puts a hint before the error of a stream that could not begin, if there is one. So it
// appears in the log, at clients (ERR-7) and in /groups. reached means that there was a stream to the
// endpoint before.
func (e *Endpoint) explained(err error, reached bool) error {
	s := status.Convert(err)
	if s.Code() != codes.Unavailable {
		return err // the server sent this status itself
	}
	to := hint.ControlPlane{Name: e.Name, Section: e.Section, TLS: e.Security, Within: ConnectTimeout}
	if text := to.Explain(s.Message(), reached); text != "" {
		return status.Error(s.Code(), text+" ("+s.Message()+")")
	}
	return err
}

// errNoRoom: there is no connection that takes the stream. The control plane is none the
// worse for it.
var errNoRoom = errors.New("no room for another stream to the control plane")

// errMoved: the stream is to go to another connection.
var errMoved = fmt.Errorf("%w: its connection takes no more, and it goes to another one", errNoRoom)

// errSpent keeps gRPC from connecting a channel again by itself, as it does for an RPC
// that comes after a GOAWAY: the streams of the old connection and those of the new one
// would then count as one connection's.
var errSpent = errors.New("the channel had its connection")

// Conn is the way to one endpoint that the streams of all groups share: one connection,
// or several where the server bounds the streams of each (UP-1, NODE-9).
//
// A channel that failed to connect is thrown away: a new one has no back-off of
// its own that would stretch ours, and its error is the error of this attempt
// (ERR-1, ERR-3). So is one whose connection was lost, or is being drained.
type Conn struct {
	endpoint Endpoint
	options  []grpc.DialOption
	work     sync.WaitGroup // checks

	mu       sync.Mutex // never held to call gRPC but to make a channel, or ask for its state
	closed   bool
	reached  bool                       // there has been a stream
	pings    keepalive.ClientParameters // of new channels
	places   connections
	room     chan struct{} // closed when there may be more of it
	checkups checkups
	comeback comeback
	standing standing
	members  map[any]func() // groups that are to know when the endpoint is back
}

// channel is a gRPC channel: one connection, and no other once that is lost.
type channel struct {
	*grpc.ClientConn
	pings time.Duration // their interval
	up    atomic.Bool   // it was connected once, and connects no more
}

// NewConn returns a Conn that connects when the first stream wants it.
func NewConn(e Endpoint) *Conn {
	e.MaxConnections = cmp.Or(e.MaxConnections, 64)
	e.MaxStreams = cmp.Or(e.MaxStreams, 100)
	e.RoomWithin = cmp.Or(e.RoomWithin, 4*time.Second)
	e.Section = cmp.Or(e.Section, "upstream")
	e.Log = cmp.Or(e.Log, slog.New(slog.DiscardHandler))
	e.Observer = cmp.Or[Observer](e.Observer, nobody{})
	if e.Dial == nil {
		e.Target, e.Dial = proxy.Through(e.Target, dialTCP, e.Log.With("upstream", e.Name))
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(e.Credentials),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(e.MaxReceive)),
		// A channel that failed is thrown away before it tries again by itself.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: ConnectTimeout}),
		grpc.WithDisableServiceConfig(),
		grpc.WithUserAgent("xds-relay"),
	}
	return &Conn{
		endpoint: e, options: options, pings: keepalive.ClientParameters{Time: e.Keepalive, Timeout: unacknowledged(e.Missing)},
		places:  connections{most: e.MaxConnections, streams: e.MaxStreams},
		room:    make(chan struct{}),
		members: make(map[any]func()),
	}
}

// SetSection says where the endpoint is configured from now on, for hints.
func (c *Conn) SetSection(section string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endpoint.Section = section
}

// join has back called when the endpoint answers again after all its streams had failed, or after
// a long silence, if it is not the group itself that was answered (ERR-1). back is called under no
// lock, from the goroutine that received the answer, and must not block.
func (c *Conn) join(group any, back func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members[group] = back
}

// quit ends join. A call may be under way.
func (c *Conn) quit(group any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.members, group)
}

// enter finds the channel for one more stream of a group, which end is to end if it must
// make room. If there is none, room is closed when it is worth another try.
func (c *Conn) enter(group any, end context.CancelFunc) (_ *seat, room <-chan struct{}, _ error) {
	var lost []*channel
	defer func() { closeAll(lost) }()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, status.Error(codes.Unavailable, "the relay is shutting down")
	}
	for _, on := range slices.Clone(c.places.all) {
		if on.channel.up.Load() && on.channel.GetState() != connectivity.Ready {
			lost = append(lost, c.retire(on)...)
		}
	}
	s := c.places.take(group)
	if s == nil {
		return nil, c.room, nil
	}
	if s.on.channel == nil {
		var err error
		if s.on.channel, err = c.newChannel(); err != nil {
			c.places.retire(s.on)
			c.places.leave(s)
			return nil, nil, err
		}
	}
	s.end = end
	return s, nil, nil
}

// newChannel makes a channel. It connects when it is first used.
func (c *Conn) newChannel() (*channel, error) {
	ch := &channel{pings: c.pings.Time}
	options := append(slices.Clip(c.options), grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		if ch.up.Load() {
			return nil, errSpent
		}
		return c.endpoint.dial(ctx, address)
	}))
	if c.pings.Time > 0 {
		options = append(options, grpc.WithKeepaliveParams(c.pings))
	}
	var err error
	ch.ClientConn, err = grpc.NewClient(c.endpoint.Target, options...)
	return ch, err
}

// dial makes a connection that is counted, and that knows itself (wire).
func (e *Endpoint) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := e.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	if err := setUserTimeout(conn, unacknowledged(e.Missing)); err != nil {
		conn.Close()
		return nil, err
	}
	e.Observer.UpstreamConnection(e.Name, true)
	return &wire{Conn: conn, over: sync.OnceFunc(func() { e.Observer.UpstreamConnection(e.Name, false) })}, nil
}

// began takes note of what came of an attempt to begin a stream. It says errNoRoom if
// the stream is to be begun elsewhere.
func (c *Conn) began(s *seat, err error) error {
	c.mu.Lock()
	known := c.places.learnt
	stuck := errors.Is(err, errStuck)
	ch := s.on.channel
	spent := ch.up.Load() && ch.GetState() != connectivity.Ready
	if err == nil || stuck {
		ch.up.Store(true)
	}
	switch {
	case s.moved:
		err = errMoved
	case stuck:
		err = errMoved
		c.makeRoom(s.on)
	case err == nil:
		s.begun, c.reached = true, true
	case spent: // the connection went meanwhile; that says nothing of the next one
		err = errMoved
	default:
		err = c.endpoint.explained(err, c.reached)
	}
	learnt := c.places.learnt
	c.mu.Unlock()
	if learnt != known {
		c.endpoint.Log.Info("the server bounds the streams of a connection; what does not fit goes to another one",
			"address", c.endpoint.Name, "streams", learnt)
	}
	return err
}

// makeRoom ends the streams that are too many for the limit which a connection has just taught.
func (c *Conn) makeRoom(on *connection) {
	for _, s := range c.places.stuck(on) {
		s.end()
	}
}

// full is the error of a stream for which there is no room.
func (c *Conn) full() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Errorf("%w: it may have %d connections with %d streams each: see upstream.max_connections and upstream.max_streams_per_connection, and what the server allows",
		errNoRoom, c.places.most, c.places.room())
}

// ended says why a stream has ended, from the error that receiving gave.
func (c *Conn) ended(s *seat, err error) error {
	c.mu.Lock()
	pings := c.pings.Time
	if strings.Contains(err.Error(), "too_many_pings") && s.on.channel.pings == pings {
		c.pings.Time *= 2 // as gRPC does for a channel, of which this is the last we see (UP-13)
	}
	slower := c.pings.Time
	moved := s.moved
	c.mu.Unlock()
	if slower != pings {
		c.endpoint.Log.Warn("the control plane rejects pings as frequent as upstream.keepalive; the interval is doubled",
			"address", c.endpoint.Name, "keepalive", slower.String())
	}
	if moved {
		return errMoved
	}
	return hide(err, s.headers)
}

// leave ends a stream, or an attempt at one, and gives its place back; failed: nobody
// else is to use its connection.
func (c *Conn) leave(s *seat, failed bool) {
	s.end()
	var over []*channel
	defer func() { closeAll(over) }()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.comeback.ended(s.answered)
	if c.places.leave(s) {
		over = append(over, s.on.channel)
	} else if failed {
		over = append(over, c.retire(s.on)...)
	}
	c.moreRoom()
}

// retire keeps streams off a connection. What it returns is to be closed under no lock.
func (c *Conn) retire(on *connection) (over []*channel) {
	if on.over {
		return nil
	}
	c.moreRoom()
	if c.places.retire(on) {
		over = append(over, on.channel)
	}
	return over
}

// moreRoom has those look again that found no room.
func (c *Conn) moreRoom() {
	close(c.room)
	c.room = make(chan struct{})
}

func closeAll(channels []*channel) {
	for _, ch := range channels {
		ch.Close()
	}
}

// Close ends all streams, and returns when nothing goes on any more.
func (c *Conn) Close() {
	c.mu.Lock()
	c.closed = true
	var channels []*channel
	for _, on := range c.places.all {
		channels = append(channels, on.channel)
	}
	c.moreRoom()
	c.mu.Unlock()
	closeAll(channels)
	c.work.Wait()
}
