package admin

import (
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/xds-relay/xds-relay/internal/descriptors"
)

// crowd is a listener with as many connections as it may have. One too many waits until another one
// is closed or has been quiet for a moment, which is then closed: neither a browser that keeps its
// connections nor a client that never asks shuts out a probe. A listener that only counts would.
type crowd struct {
	net.Listener
	most   int
	once   sync.Once
	closed chan struct{}
	fewer  chan struct{} // has one when a connection has gone

	mu    sync.Mutex
	since map[net.Conn]time.Time // when it came, or its last request was answered; zero: one is being answered
}

// aMoment is how long a connection is quiet before it may be closed for another one.
const aMoment = 100 * time.Millisecond

func newCrowd(l net.Listener, most int) *crowd {
	return &crowd{Listener: l, most: most, closed: make(chan struct{}), fewer: make(chan struct{}, 1), since: make(map[net.Conn]time.Time)}
}

// Accept implements net.Listener.
func (c *crowd) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok && descriptors.Exhausted(err) {
			op.Op = "no file descriptor is left; raise LimitNOFILE (ulimit -n): " + op.Op
		}
		return nil, err
	}
	for !c.enter(conn) {
		select {
		case <-c.fewer:
		case <-time.After(aMoment):
		case <-c.closed:
			conn.Close()
			return nil, net.ErrClosed
		}
	}
	return conn, nil
}

// enter takes in a connection, for another one if need be.
func (c *crowd) enter(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.since) >= c.most {
		quiet := c.quietest()
		if quiet == nil {
			return false
		}
		delete(c.since, quiet)
		quiet.Close()
	}
	c.since[conn] = time.Now()
	return true
}

// quietest is the connection that has been quiet longest; nil: none has been for a moment.
func (c *crowd) quietest() (quietest net.Conn) {
	before := time.Now().Add(-aMoment)
	for conn, since := range c.since {
		if !since.IsZero() && since.Before(before) {
			quietest, before = conn, since
		}
	}
	return quietest
}

// changed is told what the server does with a connection.
func (c *crowd) changed(conn net.Conn, s http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, in := c.since[conn]; !in {
		return // it has had to go
	}
	switch s {
	case http.StateActive:
		c.since[conn] = time.Time{}
	case http.StateIdle:
		c.since[conn] = time.Now()
	case http.StateClosed:
		delete(c.since, conn)
		select {
		case c.fewer <- struct{}{}:
		default:
		}
	}
}

// Close implements net.Listener.
func (c *crowd) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Listener.Close()
}
