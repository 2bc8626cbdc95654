package downstream

import (
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/xds-relay/xds-relay/internal/descriptors"
	"github.com/xds-relay/xds-relay/internal/share"
)

// doors are the listeners of a Server, and what they have let in.
type doors struct {
	// The Server's.
	now      func() *ServerConfig
	log      *slog.Logger
	observer Observer
	reading  *reading

	mu        sync.Mutex
	listeners []*door
	entries   share.Ledger[*conn]
	waits     waits          // of those who open streams too fast
	wasted    buckets        // the streams for nothing: reset, of a connection that was closed soon, or ended for what they ask for
	fresh     map[*conn]bool // those whose handshake is not finished
	shut      bool

	seldom seldom
}

// door is a listener that lets in as many connections as there may be, and signals when it is
// closed.
type door struct {
	net.Listener
	doors  *doors
	once   sync.Once
	closed chan struct{}
}

// ClosedFor is why the relay closed a connection. It is a closed set, fit for a metric label.
type ClosedFor string

// The values of ClosedFor.
const (
	// ClosedTooMany: there were as many connections as there may be.
	ClosedTooMany ClosedFor = "too_many"
	// ClosedHandshake: its handshake took too long.
	ClosedHandshake ClosedFor = "handshake_timeout"
	// ClosedDisplaced: a client with fewer connections needed one.
	ClosedDisplaced ClosedFor = "displaced"
	// ClosedFlood: it opened streams too fast. ClosedWaiting: its client has done so, and has to wait.
	ClosedFlood   ClosedFor = "flood"
	ClosedWaiting ClosedFor = "flood_wait"
)

// ClosedReasons lists them all, for an Observer.
func ClosedReasons() []ClosedFor {
	return []ClosedFor{ClosedTooMany, ClosedHandshake, ClosedDisplaced, ClosedFlood, ClosedWaiting}
}

func newDoors(now func() *ServerConfig, log *slog.Logger, o Observer, r *reading) *doors {
	return &doors{now: now, log: log, observer: o, reading: r, fresh: make(map[*conn]bool), wasted: buckets{within: refillIn}}
}

// add returns the listener that gRPC gets.
func (d *doors) add(l net.Listener) net.Listener {
	d.mu.Lock()
	defer d.mu.Unlock()
	o := &door{Listener: l, doors: d, closed: make(chan struct{})}
	d.listeners = append(d.listeners, o)
	return o
}

// close waits until gRPC has closed all listeners, and closes the connections whose handshake is
// not finished. When gRPC stops it would wait for these, and meanwhile no client would be sent
// away.
func (d *doors) close() {
	d.mu.Lock()
	d.shut = true
	listeners := d.listeners
	var fresh []*conn
	for c := range d.fresh {
		fresh = append(fresh, c)
	}
	d.mu.Unlock()
	for _, c := range fresh {
		c.Close()
	}
	for _, l := range listeners {
		<-l.closed
	}
}

// Accept implements net.Listener. It lets in what there is room for. Others it closes at once, so
// that they try another replica: left unaccepted they would wait, and each one let in beyond the
// limit of descriptors takes one that the relay needs to reach its control plane.
func (l *door) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			if descriptors.Exhausted(err) {
				l.doors.exhausted(err)
			}
			return nil, err
		}
		c := newConn(raw, l.doors)
		if l.doors.enter(c) {
			return c, nil
		}
		raw.Close()
	}
}

// enter takes in a connection, if there is room for it.
func (d *doors) enter(c *conn) bool {
	config := d.now()
	holder, _ := c.entry.Holder()
	var displaced []*conn
	got := 0
	d.mu.Lock()
	waits, open := d.waits.has(holder, c.since), !d.shut
	if open && !waits {
		got, displaced = d.entries.Take(c.entry, 1, config.MaxConnections, nil)
	}
	in := got > 0
	if in {
		d.fresh[c] = true
	}
	d.mu.Unlock()
	d.displace(displaced, config)
	switch {
	case waits:
		d.observer.ClientConnectionClosed(ClosedWaiting)
	case open && !in:
		d.observer.ClientConnectionClosed(ClosedTooMany)
		d.warn(ClosedTooMany, "downstream.listen: there are as many connections as there may be, and more are closed at once, so that these clients try another replica; "+config.MoreConnections,
			"max_connections", config.MaxConnections)
	}
	return in
}

// displace closes connections for those of clients with fewer.
func (d *doors) displace(conns []*conn, config *ServerConfig) {
	for _, c := range conns {
		d.observer.ClientConnectionClosed(ClosedDisplaced)
		d.warn(ClosedDisplaced, "downstream.listen: there are as many connections as there may be, and the newest one of the client that has most is closed for one that has fewer; "+config.MoreConnections,
			"max_connections", config.MaxConnections, "peer", PeerName(c.RemoteAddr()))
		c.began.Store(0) // it is not its client that quits
		c.Close()
	}
}

// exhausted says that nobody can be let in although there is room: something else has taken the
// descriptors. gRPC tries again.
func (d *doors) exhausted(err error) {
	d.warn("descriptors", "downstream.listen: no file descriptor is left to accept clients; raise LimitNOFILE (ulimit -n), or lower downstream.max_connections", "err", err)
}

// warn says that clients are not let in, now and then.
func (d *doors) warn(reason ClosedFor, text string, args ...any) {
	d.seldom.warn(d.log, string(reason), text, args...)
}

// settled takes note that the handshake of a connection is over, however it ended.
func (d *doors) settled(c *conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.fresh, c)
}

// left takes note that a connection is closed.
func (d *doors) left(c *conn) {
	d.mu.Lock()
	late := d.fresh[c] && time.Since(c.since) >= handshakeLimit
	delete(d.fresh, c)
	if !c.closed {
		c.closed = true
		d.entries.Leave(c.entry)
	}
	d.mu.Unlock()
	if late {
		d.observer.ClientConnectionClosed(ClosedHandshake)
		d.log.Warn("a client could not connect: it has not spoken HTTP/2, or finished its TLS handshake, within "+handshakeLimit.String(), "peer", PeerName(c.RemoteAddr()))
	}
}

// connections is how many are open.
func (d *doors) connections() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.entries.Used()
}

// check returns the invariants that do not hold.
func (d *doors) check() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.entries.Check()
}

// Close implements net.Listener.
func (l *door) Close() error {
	defer l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}
