package relay

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	lrs "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/internal/passthrough"
	"github.com/xds-relay/xds-relay/upstream"
)

// Here is a loadGroup's one call to the control plane. While there is none, or no answer on it, load is kept in the sum
// (LRS-6, LRS-8).

// The interval of reports where the control plane gives none, and the shortest.
const (
	defaultInterval = 10 * time.Second
	minInterval     = 100 * time.Millisecond
)

// noInterval is how often a call looks around on which the control plane has not answered.
const noInterval = time.Hour

// The waits between attempts to open a call.
const (
	firstWait = time.Second
	mostWait  = 30 * time.Second
)

// errAgain: the group itself has ended its call.
var errAgain = errors.New("the call is opened again")

// run has a call to the control plane open until the group is over.
func (g *loadGroup) run(ctx context.Context) {
	defer close(g.done)
	wait, warned := firstWait, false
	for !g.over(true) && ctx.Err() == nil {
		answered, err := g.call(ctx)
		if answered {
			wait, warned = firstWait, false
		}
		switch {
		case errors.Is(err, errAgain):
			continue
		case status.Code(err) == codes.Unimplemented:
			g.refuse(err) // which is logged for each client
		case answered:
			g.log.Info("the control plane has ended the call with load reports; it is opened again", "err", status.Convert(err).Message())
		case !warned:
			warned = true
			g.log.Warn("load reports do not reach the control plane; until they do, load is added up", "err", status.Convert(err).Message())
		}
		g.pause(ctx, time.Duration(float64(wait)*(0.8+0.4*rand.Float64()))) //nolint:gosec // it spreads attempts
		wait = min(2*wait, mostWait)
	}
}

// pause waits before another attempt, or until the group is over.
func (g *loadGroup) pause(ctx context.Context, wait time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for !g.over(false) {
		select {
		case <-ctx.Done():
			return
		case <-g.wake:
		}
	}
}

// loadCall is a call to the control plane.
type loadCall struct {
	*loadGroup
	*upstream.Call
	to       destination
	via      []string
	every    time.Duration // zero: the control plane has not answered on this call, and gets no load (LRS-8)
	tick     *time.Timer
	answers  chan *lrs.LoadStatsResponse
	finished chan error
}

// call opens a call and reports load until it ends. It says whether the control plane has answered.
func (g *loadGroup) call(ctx context.Context) (answered bool, _ error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &loadCall{loadGroup: g, to: g.of.passage.destination(), via: g.way(), answers: make(chan *lrs.LoadStatsResponse), finished: make(chan error, 1)}
	headers := g.headers
	if !g.of.passage.forwards(c.to.made.entry.Address) {
		headers = nil
	}
	var err error
	if c.Call, err = c.to.calls.Call(ctx, loadMethod, append(slices.Clip(c.via), g.of.passage.hop), headers); err != nil {
		if c.to.over.Err() != nil {
			err = errAgain // to the one that is in use now
		}
		return false, err
	}
	defer c.Leave()
	c.tick = time.NewTimer(noInterval)
	defer c.tick.Stop()
	var receiver sync.WaitGroup
	defer receiver.Wait()
	defer cancel()
	receiver.Go(func() { c.finished <- c.receive(ctx) })
	_ = c.send(&lrs.LoadStatsRequest{Node: g.node}) // receiving has the error
	err = c.serve(ctx, cancel)
	return c.every > 0, err
}

// serve reports load until the call ends, or has to.
func (c *loadCall) serve(ctx context.Context, cancel context.CancelFunc) error {
	for {
		select {
		case err := <-c.finished:
			return err
		case r := <-c.answers:
			if every := c.ask(r); every != c.every { // else the interval goes on
				c.every = every
				c.tick.Reset(every)
			}
		case <-c.tick.C:
			c.tick.Reset(cmp.Or(c.every, noInterval))
			c.report()
			c.refresh()
		case <-c.wake:
			switch moves := len(c.way()) > len(c.via); {
			case moves, c.over(false):
				return c.end(cancel)
			case c.deserted():
				c.report() // nothing more comes for now
			}
		case <-c.to.over.Done():
			return c.end(cancel)
		case <-ctx.Done():
			return errAgain
		}
	}
}

// report sends the sum, if the control plane has asked for it. What certainly was not sent comes back; what gRPC has taken
// is gone, although a broken connection may lose it: else it could count twice (LRS-6).
func (c *loadCall) report() {
	if c.every == 0 {
		return
	}
	c.mu.Lock()
	taken := c.sum.Take(time.Now())
	c.mu.Unlock()
	if err := c.send(&lrs.LoadStatsRequest{ClusterStats: taken}); err != nil { // receiving has it, too
		c.mu.Lock()
		c.sum.GiveBack(taken)
		c.mu.Unlock()
	}
}

// send sends a message.
func (c *loadCall) send(r *lrs.LoadStatsRequest) error {
	wire, err := proto.Marshal(r)
	if err != nil {
		return err
	}
	if err := c.SendMsg(passthrough.MessageOf(wire)); err != nil {
		return err
	}
	if o := c.of.observer; o != nil {
		o.LoadReported(len(wire))
	}
	return nil
}

// end reports what there is, and ends the call in a way that lets the control plane read it.
func (c *loadCall) end(cancel context.CancelFunc) error {
	late := time.AfterFunc(leaveWithin, cancel)
	defer late.Stop()
	c.report()
	_ = c.CloseSend() // it never fails
	for {
		select {
		case <-c.answers:
		case <-c.finished: //nolint:errcheck // whatever it is, the call is over
			return errAgain
		}
	}
}

// receive takes in the control plane's answers, until the call ends.
func (c *loadCall) receive(ctx context.Context) error {
	for {
		m, r := new(passthrough.Message), new(lrs.LoadStatsResponse)
		if err := c.RecvMsg(m); err != nil {
			return err
		}
		err := proto.Unmarshal(m.Bytes(), r)
		if m.Free(); err != nil {
			return status.Errorf(codes.Internal, "xds-relay: the control plane's answer to load reports cannot be read: %v", err)
		}
		select {
		case c.answers <- r:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
