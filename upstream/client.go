package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/events"
	"github.com/xds-relay/xds-relay/internal/service"
	"github.com/xds-relay/xds-relay/upstream/session"
)

// Client keeps one group's streams to the control plane, as a session.Core decides. It has one
// goroutine that opens streams and keeps time, and two for each stream.
type Client struct {
	hub         *fanout.Hub
	log         *slog.Logger
	observer    Observer
	tracer      Tracer // nil: nobody traces
	events      *events.Ring
	owner       owner
	fingerprint cache.Fingerprint

	// order is held over a step of the Core and its Effects, so that the Hub gets them in
	// order. It is taken before mu.
	order sync.Mutex
	mu    sync.Mutex // held to step the Core, never to send or to apply
	core  *session.Core
	ways
	streams  map[session.StreamID]*stream
	failed   map[*Conn]failures // what the group has logged of an entry since it last answered the group
	missed   missed
	changes  []change
	refusals []session.Refusal // that are not reported yet
	over     bool              // Run has returned

	wake  chan struct{} // one slot
	turns atomic.Uint64 // counts the turns of Run's loop
}

// ways are how the control planes are reached: a Conn for each entry, and the service that is called.
type ways struct {
	conns   []*Conn
	service service.Service
}

// owner has the functions of ClientOptions by which the owner of the group hears of it; nil: it does not want to.
type owner struct {
	denied  func(entry string)
	refused func(session.Refusal)
	retired func()
}

// stream is an attempt to open a stream, and the stream.
type stream struct {
	open   session.Open
	conn   *Conn
	cancel context.CancelFunc
	wake   chan struct{} // one slot: there may be something to write
	done   chan struct{} // closed when it has ended
	ads    adsStream     // once it is open; guarded by the Client's mu
}

// ClientOptions are the Client's ties to the rest of the relay.
type ClientOptions struct {
	Conns []*Conn // in the order of Config.Entries; groups share them
	// Service is the discovery service that is called; the zero one is the aggregated one (UP-27).
	Service  service.Service
	Hub      *fanout.Hub
	Log      *slog.Logger
	Observer Observer       // nil: nobody
	Tracer   Tracer         // follows updates to clients; nil: nobody traces
	Events   *events.Ring   // receives events about the group; nil: nobody does
	Random   func() float64 // nil: math/rand; numbers in [0, 1)
	// Denied, if not nil, is called under no lock when an entry does not let the group in
	// (NODE-13).
	Denied func(entry string)
	// Refused, if not nil, is called under no lock when an entry refuses the group's streams because of
	// what some of its clients say (UP-21).
	Refused func(session.Refusal)
	// Retired, if not nil, is called under no lock when the group may end after Retire (NODE-10).
	Retired func()
}

// NewClient returns a Client that does nothing until Run.
func NewClient(config session.Config, o ClientOptions) *Client {
	c := &Client{
		ways: ways{o.Conns, o.Service}, hub: o.Hub, log: o.Log, observer: cmp.Or[Observer](o.Observer, nobody{}), tracer: o.Tracer, events: o.Events, owner: owner{o.Denied, o.Refused, o.Retired},
		fingerprint: config.Fingerprint,
		streams:     make(map[session.StreamID]*stream),
		failed:      make(map[*Conn]failures),
		missed:      make(missed),
		wake:        make(chan struct{}, 1),
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	if c.service.ServiceName == "" {
		c.service, _ = service.Of("")
	}
	c.core = session.NewCore(config, o.Hub, o.Random)
	return c
}

// Run serves the group until ctx ends. It returns when all its goroutines have.
func (c *Client) Run(ctx context.Context) {
	var streams sync.WaitGroup
	defer c.finish()
	defer streams.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.hub.Wanted().OnWake(func() { poke(c.wake) })
	defer c.hub.Wanted().OnWake(nil)
	conns := c.conns
	c.join(nil, conns)
	defer func() { c.join(conns, nil) }()
	timer := time.NewTimer(0)
	defer timer.Stop()
	c.step(func(now time.Time) { c.core.Interest(now) })
	for {
		c.turns.Add(1)
		var open []session.Open
		var shut []session.StreamID
		var changed []change
		over := false
		c.step(func(now time.Time) {
			changed = c.reconfigure(now)
			if c.hub.Wanted().Pending() {
				c.core.Interest(now)
			}
			open, shut = c.core.Tick(now)
			over = c.core.Over(now)
		})
		if over && c.owner.retired != nil {
			c.owner.retired()
		}
		for _, id := range shut {
			c.shut(id)
		}
		for _, ch := range changed {
			c.join(conns, ch.conns)
			conns = ch.conns
			close(ch.done)
		}
		for _, o := range open {
			s := &stream{open: o, conn: conns[o.Entry], wake: make(chan struct{}, 1), done: make(chan struct{})}
			streamCtx, cancel := context.WithCancel(ctx)
			s.cancel = cancel
			c.mu.Lock()
			c.streams[o.ID] = s
			c.mu.Unlock()
			streams.Go(func() { c.serve(ctx, streamCtx, s) })
		}
		c.pokeStreams()
		c.tellMissing()
		c.tellRefused()
		timer.Reset(c.idle())
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		case <-timer.C:
		}
	}
}

// Nudge makes the loop of Run turn once more, and returns how often it has turned so far. It
// does not wait: if the number is the same at the next call, the loop is stuck (/livez).
func (c *Client) Nudge() (turns uint64) {
	poke(c.wake)
	return c.turns.Load()
}

// idle is how long nothing is due. It is called after the Effects, which may bring a deadline,
// for example that of held removals (H-22).
func (c *Client) idle() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if at := c.missed.deadline(c.core.Deadline(now)); !at.IsZero() {
		return max(at.Sub(now), 0)
	}
	return time.Hour
}

// step reports one event to the Core, and then carries out the Effects, outside of the lock
// under which requests are composed. Other goroutines step after that: a timer that runs out
// must not overtake the response that has just come (MISS-7, H-40).
func (c *Client) step(event func(now time.Time)) {
	c.order.Lock()
	defer c.order.Unlock()
	for _, e := range c.take(event) {
		begins := time.Now()
		o := e.Apply(c.hub)
		c.report(e, o, begins)
	}
}

func (c *Client) take(event func(now time.Time)) []session.Effect {
	c.mu.Lock()
	defer c.mu.Unlock()
	event(time.Now())
	return c.core.Effects()
}

// update changes the Core, or what is kept beside it, and has Run look at that.
func (c *Client) update(change func(now time.Time)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(time.Now())
	poke(c.wake)
}

// isBack notes that an entry answers another group again (ERR-1).
func (c *Client) isBack(conn *Conn) {
	c.update(func(now time.Time) {
		if i := slices.Index(c.conns, conn); i >= 0 {
			c.core.Back(i, now)
		}
	})
}

// Retire reports that the group has no clients any more. Retired is called as soon as its stream
// is alive (NODE-10). If the group stays, its streams close instead.
func (c *Client) Retire(stays bool) {
	c.update(func(now time.Time) { c.core.Retire(stays, now) })
}

// Stay reports that the group has clients again.
func (c *Client) Stay() { c.update(func(time.Time) { c.core.Stay() }) }

// Proven reports whether a stream of the group works.
func (c *Client) Proven() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.core.Proven(time.Now())
}

// Serving is the Conn to the entry that is in use, if that has answered; nil: none has.
func (c *Client) Serving() *Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.core.Heard() {
		return nil
	}
	return c.conns[c.core.InUse()]
}

// Alive returns when the control plane was last known to be alive, by a stream of the group; zero:
// never.
func (c *Client) Alive() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.core.Alive(time.Now())
}

// check starts a health check of a stream's connection.
func (c *Client) check(id session.StreamID, timeout time.Duration) {
	c.mu.Lock()
	s := c.streams[id]
	c.mu.Unlock()
	if s == nil {
		return // it has ended
	}
	s.conn.check(s.ads, timeout, func(k session.Check) {
		c.step(func(now time.Time) { c.core.Checked(id, k, now) })
		poke(c.wake)
	})
}

// SetNode replaces the group's node.
func (c *Client) SetNode(node *core.Node) {
	c.update(func(time.Time) { c.core.SetNode(node) })
}

// SetVia sets the longest chain of relays through which clients come (NODE-11).
func (c *Client) SetVia(via []string) {
	c.update(func(now time.Time) { c.core.SetVia(via, now) })
}

func poke(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

func (c *Client) pokeStreams() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.streams {
		poke(s.wake)
	}
}

// shut closes a stream, and waits until it has ended: the server must not see the stream that
// replaces it as a second one.
func (c *Client) shut(id session.StreamID) {
	c.mu.Lock()
	s := c.streams[id]
	c.mu.Unlock()
	if s != nil {
		s.cancel()
		<-s.done
	}
}

// serve opens one stream and receives on it until it ends. parent ends when the
// relay stops, ctx also when the stream is to be shut.
func (c *Client) serve(parent, ctx context.Context, s *stream) {
	defer close(s.done)
	id, kind := s.open.ID, s.kind()
	log := c.log.With("stream", kind.Role)
	grpcStream, err := s.conn.open(ctx, c, c.service, kind.Role, kind.SotW, s.open.Via, s.open.Headers)
	if err == nil {
		c.mu.Lock()
		s.ads = grpcStream
		c.mu.Unlock()
		c.observer.UpstreamConnected(kind, true)
		named := log.With("address", kind.Entry)
		named.Debug("upstream stream open", "mode", kind.Mode())
		c.step(func(now time.Time) { c.core.Opened(id, now) })
		var sender sync.WaitGroup
		sender.Go(func() { c.send(ctx, id, s, grpcStream, named) })
		poke(s.wake)
		poke(c.wake)
		stop := c.awaitSign(s, grpcStream)
		err = c.receive(id, s, grpcStream, named)
		stop()
		s.cancel()
		sender.Wait()
		grpcStream.leave()
		c.observer.UpstreamConnected(kind, false)
	}
	s.cancel()

	end, reason := Ending(err)
	var wait time.Duration
	c.step(func(now time.Time) {
		delete(c.streams, id)
		if !c.core.Uses(id) { // shut by the Core
			reason = replanned
		}
		c.core.Ended(id, end, now)
		wait = c.core.Wait(kind.Role, now)
	})
	if parent.Err() != nil {
		return // the relay stops
	}
	c.observer.UpstreamReconnect(kind.Role, reason, wait)
	switch {
	case reason == replanned, reason == moved: // nothing went wrong
		log.Debug("upstream stream closed", "address", kind.Entry, "reason", reason)
	case kind.Role == session.Trial:
		log.Debug("a type that the control plane has never answered was tried alone, and the stream ended; it is tried again", "address", kind.Entry, "reason", reason, "err", end.Message)
	default:
		e := ended{end, kind, grpcStream.ClientStream != nil, reason, status.Code(err).String(), wait}
		s.conn.tellEnded(e, log, c.hub.Name(), func() bool { return c.firstFailure(s.conn, e) })
	}
	if end.Kind == session.EndDenied && c.owner.denied != nil && kind.Role != session.Trial {
		c.owner.denied(kind.Entry)
	}
	poke(c.wake)
}

// kind describes a stream for an Observer.
func (s *stream) kind() Stream {
	return Stream{Role: s.open.Role, Entry: s.conn.endpoint.Name, SotW: s.open.SotW}
}

// receive handles responses. It never waits for a client, nor for the sender.
func (c *Client) receive(id session.StreamID, s *stream, in adsStream, log *slog.Logger) error {
	for {
		resp, err := in.receive()
		if err != nil {
			return err
		}
		routine, err := c.takeIn(id, s, resp, log)
		if err != nil {
			return err
		}
		poke(s.wake)
		if !routine {
			poke(c.wake)
		}
	}
}

// takeIn gives a response to the Hub, and then lets its ACK be sent. routine means that Run has
// nothing to do about it. A panic ends only the stream on which the response came.
func (c *Client) takeIn(id session.StreamID, on *stream, resp proto.Message, log *slog.Logger) (routine bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			c.observer.UpstreamDropped(panicked)
			log.Error("bug: a response made the relay panic", "err", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = errors.New("internal error while taking in a response")
		}
	}()
	received := time.Now()
	d := session.Decode(resp, c.fingerprint)
	if debugs(log) {
		c.tellResponse(log, d, proto.Size(resp))
	}
	d.Update.Source = c.source(on, resp, d, received)
	c.observer.UpstreamResponse(d.TypeURL, len(d.Update.Set)+len(d.Bodyless), len(d.Update.Removed))
	c.step(func(now time.Time) {
		if s := c.streams[id]; s != nil {
			delete(c.failed, s.conn)
		}
		c.core.Receive(id, d, now)
	})
	var nack string
	var overrun bool
	c.step(func(now time.Time) { nack, overrun = c.core.Applied(id, d, now) })
	for _, t := range d.Update.Source.List() {
		c.tracer.Taken(t, nack)
	}
	if nack != "" {
		c.observer.UpstreamNack(d.TypeURL)
		log.Warn("response rejected; its sound resources are used", "type", d.TypeURL, "nonce", d.Nonce, "err", nack)
		c.event(events.ResponseRejected, events.Warn, d.TypeURL, events.Event{Message: "the relay has rejected a response of the control plane, and uses its sound resources: " + nack})
	}
	if overrun {
		return false, errors.New("the control plane sends without reading: too many responses wait for their ACK")
	}
	return d.Routine, nil
}

// send writes the requests of the Core, one at a time.
func (c *Client) send(ctx context.Context, id session.StreamID, s *stream, out adsStream, log *slog.Logger) {
	for {
		c.mu.Lock()
		req := c.core.Next(id, time.Now())
		c.mu.Unlock()
		if req == nil {
			select {
			case <-ctx.Done():
				return
			case <-s.wake:
				continue
			}
		}
		if out.SendMsg(req) != nil {
			return // Recv has the reason
		}
		if debugs(log) {
			c.tellRequest(log, req)
		}
		if starts(req) {
			poke(c.wake)
		}
	}
}

// starts reports whether a request may have started timers, because it subscribes to something
// (MISS-3). A Delta ACK or NACK never does (UP-5).
func starts(req proto.Message) bool {
	delta, ok := req.(*discovery.DeltaDiscoveryRequest)
	return !ok || delta.GetResponseNonce() == ""
}
