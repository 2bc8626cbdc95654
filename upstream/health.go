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

// Whether anybody is at the other end of a connection that says nothing (protocol.md
// §0, Alive). The peer is asked for its health, and any answer will do. The question
// goes where the stream is: after a GOAWAY a new RPC goes elsewhere, and says nothing
// of the old connection.

// checking is a check that is under way.
type checking struct {
	begun   time.Time
	askers  []func(session.Check)
	read    int64 // bytes that had come when it was written
	message string
}

// errSilent ends a check that was not answered in time.
var errSilent = errors.New("no answer in time")

// check asks whether the peer is there, on the connection that a stream is on. then
// is called once, from another goroutine and under no lock, and must not block. While
// a check of the connection is under way its result is everybody's: the asker looks at
// Begun, and asks again if that is too early. A connection that is found silent, and on
// which no byte has come since the question was written, is given up after all askers
// have been told: its streams end. After Close nobody is told anything.
func (c *Conn) check(s adsStream, timeout time.Duration, then func(session.Check)) {
	w := wireOf(s.ClientStream)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
	case c.checkups.off:
		c.work.Go(func() {
			then(session.Check{Begun: time.Now(), Verdict: session.Blind, Message: "upstream.health_check is off"})
		})
	case w == nil:
		c.work.Go(func() { then(session.Check{Begun: time.Now(), Message: "the stream's connection is not known"}) })
	case w.check != nil:
		w.check.askers = append(w.check.askers, then)
	default:
		k := &checking{begun: time.Now(), askers: []func(session.Check){then}}
		w.check = k
		c.work.Go(func() { c.carryOut(s.tenure.channel, w, k, timeout) })
	}
}

func (c *Conn) carryOut(ch *channel, w *wire, k *checking, timeout time.Duration) {
	messages := w.messages.Load()
	r := c.ask(ch, w, k, timeout)

	c.mu.Lock()
	verdict, off := c.checkups.judge(r, &w.answered, w.messages.Load() != messages)
	w.check = nil
	silent := r == replyNone && w.read.Load() == k.read
	var over []*channel
	if silent {
		over = c.retire(ch)
	}
	c.mu.Unlock()

	if off {
		c.endpoint.Log.Warn("the control plane, or what is before it, answers UNAVAILABLE when asked whether anybody is there, and serves streams all the same; it is not asked any more, and its silence says less: see upstream.health_check",
			"address", c.endpoint.Name, "method", healthpb.Health_Check_FullMethodName, "err", k.message)
	}
	c.endpoint.Observer.UpstreamCheck(c.endpoint.Name, verdict)
	for _, then := range k.askers {
		then(session.Check{Begun: k.begun, Verdict: verdict, Message: k.message})
	}
	if silent {
		w.Close()
		closeAll(over)
	}
}

// ask asks, and waits for the answer.
func (c *Conn) ask(ch *channel, w *wire, k *checking, timeout time.Duration) reply {
	headers, _ := c.endpoint.own() // without them any answer will do, too
	if ch.GetState() != connectivity.Ready {
		return replyUnasked // nobody is there to ask
	}
	ctx, cancel := context.WithCancelCause(withHeaders(context.Background(), headers))
	defer cancel(nil)
	stream, err := begin(ctx, ch, func(ctx context.Context) (grpc.ClientStream, error) {
		return ch.NewStream(ctx, &grpc.StreamDesc{}, healthpb.Health_Check_FullMethodName)
	})
	if errors.Is(err, errStuck) { // so many streams run as the server allows: one is to go elsewhere
		c.mu.Lock()
		c.makeRoom(ch)
		c.mu.Unlock()
	}
	if err != nil || wireOf(stream) != w {
		return replyUnasked
	}
	k.read = w.read.Load()
	// No deadline that the peer would know of: it is not to answer with that.
	timer := time.AfterFunc(timeout, func() { cancel(errSilent) })
	defer timer.Stop()
	if err = stream.SendMsg(&healthpb.HealthCheckRequest{}); err == nil {
		err = stream.RecvMsg(&healthpb.HealthCheckResponse{})
	}
	k.message = header.Hide(status.Convert(err).Message(), headers)
	header, _ := stream.Header() // it has come, or never will
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
		// gRPC says so too when the connection breaks. Metadata is the peer's; an answer
		// that is not gRPC's has none.
		if len(header)+len(stream.Trailer()) > 0 || strings.Contains(k.message, "unexpected HTTP status code") {
			return replyUnavailable
		}
		return replyUnasked
	default:
		return replyOther
	}
}
