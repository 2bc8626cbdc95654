package downstream

import (
	"context"
	"errors"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/xds-relay/xds-relay/downstream/session"
)

// A client that opens streams and resets them, as fast as it can, never has many open, and costs the relay a handler
// for each (HTTP/2 rapid reset). So the streams that a connection opens have a rate (VALID-8). They are counted where
// their frames are read: gRPC says nothing of those that it refuses itself.

const (
	// refillIn is the time in which a connection may open once more as many streams as it may open at once.
	refillIn = 10 * time.Second
	// floodWait is how long the client waits whose connection was closed.
	floodWait = 10 * time.Second
	// briefly is how old a connection is at most whose streams were for nothing if its client closes it.
	briefly = 5 * time.Second
	// few is how many streams a connection may open at once whose client has opened many for nothing.
	few = 10
	// maxWaits bounds those who are remembered because they have to wait.
	maxWaits = 4096
)

// opening returns the rate at which a connection may open streams; nil: there is no bound.
func opening(most uint32) *rate.Limiter {
	if most == 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(float64(most)/refillIn.Seconds()), int(most))
}

// opened counts a stream that the client opens. Its caller reads the connection.
func (c *conn) opened() {
	c.began.Add(1)
	if c.opens != nil && !c.opens.Allow() {
		c.doors.flooded(c)
	}
}

// reset counts a stream that the client resets.
func (c *conn) reset() { c.forNothing(1) }

// faulted counts a stream that is ended because of what its client asks for, which may try again at once. It counts
// for as many as it has types, each of which has cost something.
func (c *conn) faulted(types int) {
	if c != nil {
		c.forNothing(max(types, 1))
	}
}

// forNothing counts streams that were for nothing. If the client has had too many, the connection is closed if it has a
// part in that and is of no use: another one may be of somebody else behind the same address.
func (c *conn) forNothing(streams int) {
	if n := c.gaveUp.Add(int64(streams)); c.doors.spend(c, streams) && n > few && !c.ofUse.Load() {
		c.doors.flooded(c)
	}
}

// spend counts streams of a connection that were for nothing, and reports whether its client had too many.
func (d *doors) spend(c *conn, streams int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	holder, exempt := c.entry.Holder()
	most := int(d.now().MaxStreams)
	if exempt || d.shut || most == 0 {
		return false
	}
	over := d.wasted.add(holder, streams, most, time.Now())
	d.wasted.spill(holder, most)
	return over > 0
}

// quit counts the streams of a connection that its client has closed soon, and did not reset.
func (d *doors) quit(c *conn) {
	n := c.began.Swap(0)
	if n > 0 && time.Since(c.since) < briefly && d.spend(c, int(max(n-c.gaveUp.Load(), 1))) {
		d.flooded(c)
	}
}

// tap is called for each stream of any method before anything is made of it, on the goroutine that reads the connection and under
// a lock of gRPC's. It refuses those whose client has to wait.
func (s *Server) tap(ctx context.Context, _ *tap.Info) (context.Context, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ctx, nil
	}
	if t, ok := p.AuthInfo.(tag); ok && t.conn != nil && s.doors.waiting(t.conn) {
		s.observer.ClientDisconnected("", mustWait)
		s.full.warn(s.log, string(mustWait), "clients are refused: they, or others of the same address or identity, have opened streams too fast, and have to wait", "reason", mustWait, "peer", PeerName(p.Addr))
		return ctx, errFlood
	}
	return ctx, nil
}

var errFlood = status.Error(codes.ResourceExhausted, "xds-relay: this client opens streams too fast and has to wait; see downstream.max_streams_per_connection")

// flooded closes a connection that opens streams too fast. Its client has to wait, unless it is exempt or another connection
// of it has been of use: then this may be one of many clients behind one address.
func (d *doors) flooded(c *conn) {
	d.mu.Lock()
	again := c.flooded
	c.flooded = true
	holder, exempt := c.entry.Holder()
	if !again && !exempt && d.entries.Oldest(c.entry) == nil {
		d.waits.add(holder, time.Now())
	}
	d.mu.Unlock()
	if again {
		return
	}
	d.observer.ClientConnectionClosed(ClosedFlood)
	d.warn(ClosedFlood, "a connection is closed because its client opens streams too fast; if it is a proxy with many clients, raise downstream.max_streams_per_connection",
		"peer", PeerName(c.RemoteAddr()), "holder", holder)
	c.Close()
}

// acknowledged takes note that a stream of a connection has acknowledged something: it is of use. Others of its client
// are displaced first, and it vouches for them.
func (c *conn) acknowledged() {
	if c == nil || c.ofUse.Swap(true) {
		return
	}
	c.doors.mu.Lock()
	defer c.doors.mu.Unlock()
	c.doors.entries.Renounce(c.entry, false)
}

// waiting reports whether a connection is closed because of its streams, or its client has to wait with new ones.
func (d *doors) waiting(c *conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	holder, relay := c.entry.Holder()
	return c.flooded || !relay && d.waits.has(holder, time.Now())
}

// identified takes note of whose a connection is, when its handshake says so. It fails if that client has to wait.
func (d *doors) identified(c *conn, info credentials.AuthInfo) error {
	var client session.Peer
	identify(&client, c.RemoteAddr(), info, d.now().Relays)
	c.flow.name(client.Holder)
	d.mu.Lock()
	waits := !client.Relay && d.waits.has(client.Holder, time.Now())
	d.entries.Move(c.entry, client.Holder, client.Relay)
	if most := int(d.now().MaxStreams); !client.Relay && d.wasted.half(client.Holder, most, time.Now()) {
		c.opens.SetBurst(min(few, most))
	}
	d.mu.Unlock()
	if waits {
		d.observer.ClientConnectionClosed(ClosedWaiting)
		return errors.New("xds-relay: this client has opened streams too fast, and has to wait")
	}
	return nil
}

// waits are those who have to wait, until when. The zero value is empty.
type waits struct {
	until map[string]time.Time
	order []waiter // the first to be over first
}

type waiter struct {
	holder string
	until  time.Time
}

// add makes somebody wait from now on. If there are very many, the one who has waited longest need not wait any more.
func (w *waits) add(holder string, now time.Time) {
	w.forget(now)
	if len(w.order) == maxWaits {
		w.drop()
	}
	if w.until == nil {
		w.until = make(map[string]time.Time)
	}
	w.until[holder] = now.Add(floodWait)
	w.order = append(w.order, waiter{holder, now.Add(floodWait)})
}

// has reports whether somebody waits.
func (w *waits) has(holder string, now time.Time) bool {
	if len(w.order) == 0 {
		return false
	}
	w.forget(now)
	_, has := w.until[holder]
	return has
}

// forget drops those whose time is over.
func (w *waits) forget(now time.Time) {
	for len(w.order) > 0 && !now.Before(w.order[0].until) {
		w.drop()
	}
}

// drop drops the first one.
func (w *waits) drop() {
	first := w.order[0]
	if w.until[first.holder].Equal(first.until) { // otherwise it has to wait again
		delete(w.until, first.holder)
	}
	if w.order = w.order[1:]; len(w.order) == 0 {
		w.order, w.until = nil, nil
	}
}
