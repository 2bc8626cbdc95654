package upstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/internal/header"
	"github.com/xds-relay/xds-relay/upstream/session"
)

// This file checks whether the peer of a silent connection is alive (protocol.md §0, Alive), with
// the gRPC health service. Any answer but UNAVAILABLE and DEADLINE_EXCEEDED shows that it is. The
// check must be on the connection of the stream: after a GOAWAY a new RPC goes to another one, and
// proves nothing about the old.

// checking is a check that is under way.
type checking struct {
	begun   time.Time
	askers  []func(session.Check)
	read    int64 // bytes that had come when the request was written
	message string
}

// errSilent ends a check that was not answered in time.
var errSilent = errors.New("no answer in time")

// check checks the connection of a stream. It calls then once, from another goroutine and under
// no lock; then must not block. The callers share a check that is under way: a caller whose
// question is later than Begun checks again. If the peer is silent, and no byte has come since
// the request was written, the connection is closed after all callers have the result, and its
// streams end. After Close nothing is called any more.
func (c *Conn) check(s adsStream, timeout time.Duration, then func(session.Check)) {
	w := wireOf(s.ClientStream)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
	case c.checkups.off:
		c.work.Go(func() {
			then(session.Check{Begun: time.Now(), Result: session.Blind, Message: "the peer refuses health checks"})
		})
	case w == nil:
		c.work.Go(func() { then(session.Check{Begun: time.Now(), Message: "the stream's connection is not known"}) })
	case w.check != nil:
		w.check.askers = append(w.check.askers, then)
	default:
		k := &checking{begun: time.Now(), askers: []func(session.Check){then}}
		w.check = k
		c.work.Go(func() { c.carryOut(s.seat.on, w, k, timeout) })
	}
}

func (c *Conn) carryOut(on *connection, w *wire, k *checking, timeout time.Duration) {
	messages := w.messages.Load()
	r := c.ask(on, w, k, timeout)

	c.mu.Lock()
	verdict, off := c.checkups.judge(r, &w.answered, w.messages.Load() != messages)
	w.check = nil
	silent := r == replyNone && w.read.Load() == k.read
	var over []*channel
	if silent {
		over = c.retire(on)
	}
	c.mu.Unlock()

	if off {
		c.endpoint.Log.Warn("the control plane, or a proxy before it, answers health checks with UNAVAILABLE although it serves streams; no more checks are sent to it, and its silence proves less: see upstream.health_check",
			"address", c.endpoint.Name, "method", healthpb.Health_Check_FullMethodName, "err", k.message)
	}
	c.endpoint.Observer.UpstreamCheck(c.endpoint.Name, verdict)
	for _, then := range k.askers {
		then(session.Check{Begun: k.begun, Result: verdict, Message: k.message})
	}
	if silent {
		w.Close()
		closeAll(over)
	}
}

// ask sends the health check, and waits for the answer.
func (c *Conn) ask(on *connection, w *wire, k *checking, timeout time.Duration) reply {
	ch := on.channel
	headers, _ := c.endpoint.own() // an answer to a check without headers proves as much
	if ch.GetState() != connectivity.Ready {
		return replyUnasked
	}
	ctx, cancel := context.WithCancelCause(withHeaders(context.Background(), headers))
	defer cancel(nil)
	stream, err := begin(ctx, ch, func(ctx context.Context) (grpc.ClientStream, error) {
		return ch.NewStream(ctx, &grpc.StreamDesc{}, healthpb.Health_Check_FullMethodName)
	})
	if errors.Is(err, errStuck) { // the connection has as many streams as the server allows: one must move
		c.mu.Lock()
		c.makeRoom(on)
		c.mu.Unlock()
	}
	if err != nil || wireOf(stream) != w {
		return replyUnasked
	}
	k.read = w.read.Load()
	// A timer instead of a deadline: the peer would learn of a deadline, and could answer with it.
	timer := time.AfterFunc(timeout, func() { cancel(errSilent) })
	defer timer.Stop()
	if err = stream.SendMsg(&healthpb.HealthCheckRequest{}); err == nil {
		err = stream.RecvMsg(&healthpb.HealthCheckResponse{})
	}
	k.message = header.Hide(status.Convert(err).Message(), headers)
	header, _ := stream.Header() // the header has come by now, or never will
	switch status.Code(err) {
	case codes.Canceled:
		if len(header) > 0 {
			return replyOther
		}
		if errors.Is(context.Cause(ctx), errSilent) {
			k.message = fmt.Sprintf("%s is not answered within %v", healthpb.Health_Check_FullMethodName, timeout)
			return replyNone
		}
		return replyUnasked // the channel is closed
	case codes.Unavailable, codes.DeadlineExceeded:
		// gRPC returns these also when the connection breaks. Only an answer of the peer has
		// metadata, or is not gRPC at all.
		if len(header)+len(stream.Trailer()) > 0 || strings.Contains(k.message, "unexpected HTTP status code") {
			return replyUnavailable
		}
		return replyUnasked
	default:
		return replyOther
	}
}
