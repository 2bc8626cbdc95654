package downstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/events"
)

// fetch answers a unary call like a SotW stream that ends with its one response. It uses a
// Session, as a stream does. What a call asks for lingers upstream afterwards, so a client that
// calls every few seconds causes no churn (UP-7). The answer is a frame whose resources all
// clients share: of a message, gRPC would keep a copy for each call whose client does not read,
// until its connection closes.
func (s *Server) fetch(c *call, kind session.Stream, in *inbox) (_ *frame, err error) {
	ctx, peer, t := c.ctx, c.peer, kind.Type
	req, end := in.sotw()
	log := func() *slog.Logger {
		return s.log.With("node_id", req.GetNode().GetId(), "peer", peer.Address, "identity", peer.Identity, "protocol", "fetch")
	}
	defer func() {
		if p := recover(); p != nil {
			s.observer.ClientPanic()
			log().Error("bug: a unary call panicked", "type", t, "err", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = statusOf(panicEnd()).Err()
		}
	}()
	refuse := func(end *session.End) error {
		if refusals[end.Reason] {
			log().Warn("client refused", "type", t, "reason", end.Reason, "err", end.Message)
		}
		return statusOf(end).Err()
	}
	if end != nil {
		return nil, refuse(end)
	}
	wake := make(chan struct{}, 1)
	call := session.New(&s.now.Load().Config, kind, peer, s.config.Groups, s.clusterDeliveries, func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	names := s.names.enter(&peer, c)
	call.Within(names)
	judged := s.rules.Load()
	defer func() {
		call.Close(time.Now())
		for _, u := range call.Untold() {
			s.config.Tracer.Untold(u.Source, u.Behind)
		}
	}()
	s.observer.ClientRequest(t, session.FetchRequest)
	_, end = call.SotWRequest(req, time.Now())
	names.displace()
	s.showCall(req.GetNode().GetId(), t, func() *events.Message { return s.outlineCall(in, end != nil) })
	if end != nil {
		return nil, refuse(end)
	}
	s.tellRefusals(call.Refusals(), log) // of globs and names: a type that is refused ends the call
	late, stop := almost(ctx)
	defer stop()
	for {
		if rules := s.rules.Load(); rules != judged {
			if end := call.Rejudge(time.Now()); end != nil {
				return nil, refuse(end)
			}
			judged = rules
		}
		r, end := call.Whole(time.Now())
		switch {
		case end != nil:
			return nil, statusOf(end).Err()
		case r != nil:
			f := encode(r)
			s.oversized(r, f.size, log)
			s.observer.ClientResponse(r.Type, len(r.Resources), 0, f.size)
			s.showCall(req.GetNode().GetId(), t, func() *events.Message { return s.response(r, f.size) })
			return f, nil
		}
		select {
		case <-wake:
		case <-late:
			return nil, statusOf(&session.End{Reason: session.Unreachable, Message: "xds-relay: upstream has not answered for all that was asked for; call again"}).Err()
		case <-ctx.Done():
			if end := (*session.End)(nil); errors.As(context.Cause(ctx), &end) {
				return nil, refuse(end)
			}
			return nil, status.FromContextError(ctx.Err()).Err()
		case <-s.stopped:
			return nil, statusOf(shuttingDown()).Err()
		}
	}
}

// The time that a call has left when the relay answers that nothing came. Any later, the client
// would have given up by itself, without the reason.
const (
	spareTime  = 100 * time.Millisecond
	spareShare = 10 // at most one part in so many
)

// almost returns a channel that fires when a call's time is nearly up; stop releases the timer.
func almost(ctx context.Context) (late <-chan time.Time, stop func()) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return nil, func() {}
	}
	left := time.Until(deadline)
	timer := time.NewTimer(left - min(spareTime, left/spareShare))
	return timer.C, func() { timer.Stop() }
}
