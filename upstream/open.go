package upstream

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/internal/header"
	"github.com/xds-relay/xds-relay/internal/hop"
	"github.com/xds-relay/xds-relay/internal/service"
	"github.com/xds-relay/xds-relay/upstream/session"
)

// beginWithin is how long a stream may take to begin on a connection that is up (UP-1).
const beginWithin = time.Second

// errStuck: the server lets no more streams begin on the connection.
var errStuck = errors.New("the server allows no more streams on this connection")

// adsStream is an ADS stream of either variant.
type adsStream struct {
	grpc.ClientStream
	sotw bool

	conn *Conn
	seat *seat
}

func (s adsStream) receive() (proto.Message, error) {
	var resp proto.Message = new(discovery.DeltaDiscoveryResponse)
	if s.sotw {
		resp = new(discovery.DiscoveryResponse)
	}
	if err := s.RecvMsg(resp); err != nil {
		return nil, s.conn.ended(s.seat, err)
	}
	s.conn.heard(s)
	return resp, nil
}

// heard takes note that a response came on a stream.
func (c *Conn) heard(s adsStream) {
	if w := wireOf(s.ClientStream); w != nil {
		w.messages.Add(1)
	}
	var back []func()
	c.mu.Lock()
	now := time.Now()
	news, away := c.standing.heard(now)
	if c.comeback.message(!s.seat.answered, now) {
		for group, f := range c.members {
			if group != s.seat.group {
				back = append(back, f)
			}
		}
	}
	s.seat.answered = true
	c.mu.Unlock()
	if news {
		c.tellAnswers(s.sotw, away)
	}
	for _, f := range back {
		f()
	}
}

// leave gives back the stream's place on its connection, when it has ended.
func (s adsStream) leave() { s.conn.leave(s.seat, false) }

// open opens a stream of a group to a discovery service, as begin does; the caller calls leave when it has ended.
func (c *Conn) open(ctx context.Context, group any, of service.Service, role session.Role, sotw bool, via []string, forwarded []header.Header) (adsStream, error) {
	headers, err := c.endpoint.own()
	if err != nil {
		return adsStream{}, err
	}
	headers = slices.Concat(headers, forwarded)
	ctx = metadata.AppendToOutgoingContext(withHeaders(ctx, headers), hop.StreamHeader, string(role), hop.ViaHeader, hop.Value(via))
	stream, s, err := c.begin(ctx, group, headers, func(ctx context.Context, ch *channel) (grpc.ClientStream, error) {
		desc, method, ok := of.Stream(sotw)
		if !ok {
			return nil, status.Errorf(codes.Unimplemented, "%s has no method of this variant", of.ServiceName)
		}
		return ch.NewStream(ctx, desc, method)
	})
	if err != nil {
		return adsStream{}, err
	}
	return adsStream{stream, sotw, c, s}, nil
}

// begin finds a connection for one more stream of a group, and opens the stream there. It does not wait for a
// connection that fails to become ready: an error is this attempt's (ERR-3). It does wait for room, and says errNoRoom
// if there is none in time.
func (c *Conn) begin(ctx context.Context, group any, headers []header.Header, open func(context.Context, *channel) (grpc.ClientStream, error)) (grpc.ClientStream, *seat, error) {
	late, stop := context.WithTimeout(ctx, c.endpoint.RoomWithin)
	defer stop()
	for {
		streamCtx, cancel := context.WithCancel(ctx)
		s, room, err := c.enter(group, cancel)
		if s == nil {
			cancel()
		}
		switch {
		case err != nil:
			return nil, nil, err
		case s == nil:
			select {
			case <-room:
				continue
			case <-late.Done():
				return nil, nil, c.full()
			}
		}
		s.headers = headers
		ch := s.on.channel
		ch.connect(streamCtx)
		stream, err := begin(streamCtx, ch, func(ctx context.Context) (grpc.ClientStream, error) { return open(ctx, ch) })
		err = c.began(s, err)
		if err == nil {
			return stream, s, nil
		}
		c.leave(s, ch.GetState() != connectivity.Ready)
		switch {
		case !errors.Is(err, errNoRoom):
			return nil, nil, err
		case late.Err() != nil:
			return nil, nil, c.full()
		}
	}
}

// connect waits until a channel is connected, or has failed.
func (ch *channel) connect(ctx context.Context) {
	for {
		s := ch.GetState()
		if s != connectivity.Idle && s != connectivity.Connecting {
			return
		}
		ch.Connect()
		if !ch.WaitForStateChange(ctx, s) {
			return
		}
	}
}

// begin begins a stream on a channel that is connected; errStuck: the server does not
// let it. gRPC waits in silence then.
func begin(ctx context.Context, ch *channel, open func(context.Context) (grpc.ClientStream, error)) (grpc.ClientStream, error) {
	ctx, cancel := context.WithCancelCause(ctx) // the stream's, which ends with its parent
	var decided atomic.Bool                     // it has begun, or is stuck
	done := make(chan struct{})
	defer close(done)
	go func() {
		tick := time.NewTicker(beginWithin)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			if ch.GetState() == connectivity.Ready && decided.CompareAndSwap(false, true) {
				cancel(errStuck)
				return
			}
		}
	}()
	stream, err := open(ctx)
	if !decided.CompareAndSwap(false, true) {
		return nil, errStuck
	}
	if err != nil {
		cancel(nil)
		return nil, err
	}
	return stream, nil
}
