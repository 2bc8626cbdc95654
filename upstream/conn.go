package upstream

import (
	"context"
	"net"
	"strings"
	"sync"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// Endpoint is how to reach the control plane.
type Endpoint struct {
	// Target is a gRPC target, such as "127.0.0.1:15010" or "dns:///istiod:15012".
	Target string
	// Credentials are TLS's, or insecure ones.
	Credentials credentials.TransportCredentials
	// MaxReceive bounds one response, in bytes (UP-12).
	MaxReceive int
	// Keepalive is the interval of HTTP/2 pings; zero: none (UP-13).
	Keepalive time.Duration
	// Dial, if set, replaces the network.
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

// connectTimeout is how long one attempt to connect may take.
const connectTimeout = 10 * time.Second

// Conn is the connection that all streams to one endpoint share (UP-1, NODE-9).
//
// A channel that failed to connect is thrown away: a new one has no back-off of
// its own that would stretch ours, and its error is the error of this attempt
// (ERR-1, ERR-3).
type Conn struct {
	endpoint Endpoint
	options  []grpc.DialOption

	mu      sync.Mutex
	channel *channel
}

// channel is a gRPC channel and how many streams it has, or attempts at one: a
// channel that failed for one group is closed when the last has seen it fail.
type channel struct {
	*grpc.ClientConn
	users     int
	discarded bool
}

// NewConn returns a connection that is made when the first stream wants it.
func NewConn(e Endpoint) *Conn {
	dial := e.Dial
	if dial == nil {
		dial = dialTCP
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(e.Credentials),
		grpc.WithContextDialer(dial),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(e.MaxReceive)),
		// A channel that failed is thrown away before it tries again by itself.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectTimeout}),
		grpc.WithDisableServiceConfig(),
		grpc.WithUserAgent("xds-relay"),
	}
	if e.Keepalive > 0 {
		options = append(options, grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: e.Keepalive}))
	}
	return &Conn{endpoint: e, options: options}
}

// adsStream is an ADS stream of either variant.
type adsStream struct {
	grpc.ClientStream
	sotw bool
}

func (s adsStream) receive() (proto.Message, error) {
	var resp proto.Message = new(discovery.DeltaDiscoveryResponse)
	if s.sotw {
		resp = new(discovery.DiscoveryResponse)
	}
	if err := s.RecvMsg(resp); err != nil {
		return nil, err
	}
	return resp, nil
}

// roleHeader tells the control plane's operator which of the relay's streams it
// looks at.
const roleHeader = "x-xds-relay-stream"

// viaHeader lists the relays that a stream has come through (NODE-11).
const viaHeader = "x-xds-relay-via"

// open opens an ADS stream; the caller calls leave when it has ended. It does not
// wait for the connection to become ready: an error is this attempt's (ERR-3).
func (c *Conn) open(ctx context.Context, role Role, sotw bool, via []string) (_ adsStream, leave func(), _ error) {
	c.mu.Lock()
	if c.channel == nil {
		cc, err := grpc.NewClient(c.endpoint.Target, c.options...)
		if err != nil {
			c.mu.Unlock()
			return adsStream{}, nil, err
		}
		c.channel = &channel{ClientConn: cc}
	}
	ch := c.channel
	ch.users++
	c.mu.Unlock()

	ctx = metadata.AppendToOutgoingContext(ctx, roleHeader, string(role), viaHeader, strings.Join(via, ","))
	stream, err := openADS(ctx, discovery.NewAggregatedDiscoveryServiceClient(ch), sotw)
	if err != nil {
		c.leave(ch, ch.GetState() != connectivity.Ready)
		return adsStream{}, nil, err
	}
	return adsStream{stream, sotw}, func() { c.leave(ch, false) }, nil
}

func openADS(ctx context.Context, client discovery.AggregatedDiscoveryServiceClient, sotw bool) (grpc.ClientStream, error) {
	if sotw {
		return client.StreamAggregatedResources(ctx)
	}
	return client.DeltaAggregatedResources(ctx)
}

// leave gives a channel back; failed: nobody else is to use it.
func (c *Conn) leave(ch *channel, failed bool) {
	c.mu.Lock()
	ch.users--
	if failed {
		ch.discarded = true
		if c.channel == ch {
			c.channel = nil
		}
	}
	over := ch.discarded && ch.users == 0
	c.mu.Unlock()
	if over {
		ch.Close()
	}
}

// Close ends the connection and all its streams.
func (c *Conn) Close() {
	c.mu.Lock()
	ch := c.channel
	c.channel = nil
	c.mu.Unlock()
	if ch != nil {
		ch.Close()
	}
}

// dialTCP notices a dead peer by itself: TCP keepalive while nothing is sent, and
// TCP_USER_TIMEOUT, where there is one, while something is (UP-13).
func dialTCP(ctx context.Context, address string) (net.Conn, error) {
	d := net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3},
		ControlContext:  setUserTimeout,
	}
	network := "tcp"
	if path, ok := unixPath(address); ok {
		network, address = "unix", path
	}
	return d.DialContext(ctx, network, address)
}
