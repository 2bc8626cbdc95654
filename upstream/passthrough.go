package upstream

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/internal/header"
	"github.com/xds-relay/xds-relay/internal/hop"
	"github.com/xds-relay/xds-relay/internal/passthrough"
)

// Calls of other services than discovery go to an entry over connections of their own (LRS-2), so that neither takes
// the other's room, and no call holds up a response (LRS-3).

// The HTTP/2 windows of these connections. They are fixed: gRPC would let the window of a stream grow to 16 MiB, and
// what is in it is what a client that does not read makes the relay keep.
const (
	callWindow  = 64 << 10
	callsWindow = 1 << 20
)

// Apart returns another Conn to the same endpoint, for calls of other services.
func (c *Conn) Apart() *Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	apart := NewConn(c.endpoint)
	apart.options = append(apart.options, grpc.WithStaticStreamWindowSize(callWindow), grpc.WithStaticConnWindowSize(callsWindow))
	return apart
}

// Call is a call that was opened by Conn.Call. Its messages are those of package passthrough.
type Call struct {
	grpc.ClientStream
	conn *Conn
	seat *seat
}

// asItComes describes all methods: also one with a single request or response is a stream on the wire.
var asItComes = &grpc.StreamDesc{StreamName: "passthrough", ClientStreams: true, ServerStreams: true}

// Call opens a call of a method, with headers of the client beside the relay's own; via is the way by which it has come.
// It ends with ctx, and the caller calls Leave then. An error has a gRPC status.
func (c *Conn) Call(ctx context.Context, method string, via []string, forwarded []header.Header) (*Call, error) {
	headers, err := c.endpoint.own()
	if err != nil {
		return nil, err
	}
	headers = slices.Concat(headers, forwarded)
	ctx = metadata.AppendToOutgoingContext(withHeaders(ctx, headers), hop.ViaHeader, hop.Value(via))
	stream, s, err := c.begin(ctx, nil, headers, func(ctx context.Context, ch *channel) (grpc.ClientStream, error) {
		return ch.NewStream(ctx, asItComes, method, grpc.ForceCodecV2(passthrough.Codec{}), grpc.MaxRetryRPCBufferSize(0)) // a message is there once
	})
	if err != nil {
		return nil, unavailable(err)
	}
	return &Call{stream, c, s}, nil
}

// RecvMsg implements grpc.ClientStream. The error is the call's end.
func (c *Call) RecvMsg(m any) error {
	if err := c.ClientStream.RecvMsg(m); err != nil {
		return unavailable(c.conn.ended(c.seat, err))
	}
	return nil
}

// Leave gives back the call's place on its connection.
func (c *Call) Leave() { c.conn.leave(c.seat, false) }

// unavailable gives a status to errors that mean that there is no room, or none any more on the call's connection.
func unavailable(err error) error {
	if errors.Is(err, errNoRoom) {
		return status.Error(codes.Unavailable, "xds-relay: "+err.Error())
	}
	return err
}
