package downstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/downstream/session"
)

// call is a unary call, or one of the health service, in progress. It has a place among all streams before its request
// has come (VALID-8).
type call struct {
	server *Server
	kind   callKind
	peer   session.Peer
	ctx    context.Context //nolint:containedctx // it lasts as long as the call
	cancel context.CancelCauseFunc
	status statusWriter
	place  *place
	from   receiver
	late   *time.Timer
}

// callKind is what an Observer and the log call it.
type callKind string

const (
	fetching callKind = "fetch"
	checking callKind = "health"
)

// requestWithin is how long the request of a call may take until it is there as a whole. A client sends it at once.
const requestWithin = 30 * time.Second

// startCall takes in a call, if there is room for it. Its handler calls close when it returns.
func (s *Server) startCall(ctx context.Context, kind callKind) (*call, error) {
	writer, ok := grpc.ServerTransportStreamFromContext(ctx).(statusWriter)
	if !ok {
		return nil, status.Error(codes.Internal, "xds-relay: built with a version of gRPC that cannot end a call from outside")
	}
	answersPlainly(ctx)
	c := &call{server: s, kind: kind, status: writer}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	peer, conn := peerOf(ctx, &s.now.Load().Config)
	c.peer, c.peer.End = peer, c.end
	if end := s.admitCall(c, conn); end != nil {
		c.cancel(nil)
		sendAway(ctx, end)
		return nil, s.turnAway(string(kind), &c.peer, end)
	}
	c.from = conn.receiver(ctx, c.end)
	c.late = time.AfterFunc(requestWithin, func() {
		c.end(&session.End{Reason: session.OverLimit, Message: fmt.Sprintf("the request of a call is not there %v after it was opened", requestWithin)})
	})
	return c, nil
}

// admitCall gives a call its place. Health checks go on while memory is short, lest the relay be restarted for it, and
// Close does not wait for them.
func (s *Server) admitCall(c *call, on *conn) (end *session.End) {
	var displaced []served
	defer func() { displace(displaced) }() // after the lock is released
	if c.kind == fetching {
		if end := s.refuses(on, time.Now()); end != nil {
			return end
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if end := s.leaving(); end != nil && (s.stopping || c.kind == fetching) {
		return end
	}
	if c.place, displaced, end = s.takePlace(&c.peer, c); end == nil && c.kind == fetching {
		s.calls++
	}
	return end
}

// end implements served. The handler may be blocked in receiving, or wait for the context.
func (c *call) end(e *session.End) {
	c.cancel(e)
	_ = c.status.WriteStatus(statusOf(e)) // an error means that the client is gone
}

// received is called with the outcome of receiving the request, and returns why the call ends, if it does.
func (c *call) received(err error) error {
	c.late.Stop()
	if end := (*session.End)(nil); err != nil && errors.As(context.Cause(c.ctx), &end) {
		if refusals[end.Reason] {
			c.server.log.Warn("client refused", "protocol", c.kind, "peer", c.peer.Address, "identity", c.peer.Identity, "reason", end.Reason, "err", end.Message)
		}
		return statusOf(end).Err()
	}
	return err
}

// close gives its place back.
func (c *call) close() {
	c.late.Stop()
	c.from.leave()
	if end := (*session.End)(nil); errors.As(context.Cause(c.ctx), &end) {
		c.server.observer.ClientDisconnected(string(c.kind), end.Reason)
	}
	c.cancel(nil)
	s := c.server
	s.mu.Lock()
	if c.kind == fetching {
		s.calls--
	}
	s.places.Leave(c.place)
	s.mu.Unlock()
}
