package downstream

import (
	"crypto/x509"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/mem"

	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/share"
)

// conn is a client's connection, below TLS, from when it was accepted. gRPC gets it in place of
// the connection of package net: so the Server knows which connections are open, also those that
// carry no stream. A stats.Handler would know that, too, and would cost something for each message.
type conn struct {
	net.Conn
	reader patient // for gRPC, in plaintext
	doors  *doors
	since  time.Time
	flow   flow
	user   string // as which user its client runs, "unix:uid=N"; "": that is not known

	// Set at the end of the handshake, before gRPC reads.
	plain bool              // what is read is HTTP/2
	proof *x509.Certificate // the certificate with which the client has proved who it is; nil: none

	opens   *rate.Limiter // of the streams that it opens; nil: there is no bound
	streams int           // open streams; guarded by Server.mu

	requests limiters // of the streams that have ended

	ofUse         atomic.Bool  // a stream of it has acknowledged something
	began, gaveUp atomic.Int64 // streams that its client has opened, and reset

	// Guarded by doors.mu.
	entry   *share.Entry[*conn]
	closed  bool
	flooded bool // it is closed because of too many streams
}

// newConn returns a connection that was accepted. Before the handshake only the address says whose it is.
func newConn(raw net.Conn, d *doors) *conn {
	config := d.now()
	c := &conn{Conn: raw, reader: newPatient(raw), doors: d, since: time.Now(), user: userOf(raw), opens: opening(config.MaxStreams)}
	c.flow.init(c, d.reading)
	var client session.Peer
	identify(&client, raw.RemoteAddr(), nil, config.Relays)
	c.entry = d.entries.Enter(client.Holder, client.Relay, c)
	d.entries.Renounce(c.entry, true) // until it is of use
	return c
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b[:c.atMost(len(b))])
	c.arrived(b[:n])
	return n, err
}

// atMost returns how many of n bytes may be read next. Below TLS everything may.
func (c *conn) atMost(n int) int {
	if c.plain {
		return c.flow.atMost(n)
	}
	return n
}

func (c *conn) arrived(b []byte) {
	if c.plain {
		c.flow.arrived(b)
	}
}

// SetDeadline implements net.Conn. gRPC sets a deadline for the handshake, and lifts it when that
// is over.
func (c *conn) SetDeadline(t time.Time) error {
	if t.IsZero() {
		c.doors.settled(c)
	}
	return c.Conn.SetDeadline(t)
}

// Close implements net.Conn.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.flow.close()
	c.doors.quit(c)
	c.doors.left(c)
	return err
}

// ReadOnReady implements what gRPC asks of a connection (Reader of its package readyreader) to
// take a read buffer from a pool only when there is something to read. Of a silent connection
// without this method it would keep one of readBuffer.
func (c *conn) ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error) {
	if c.reader != nil {
		b, n, err := c.reader.read(c.atMost(size), pool)
		if err == nil {
			c.arrived((*b)[:n])
		}
		return b, n, err
	}
	b := pool.Get(size)
	n, err := c.Read(*b)
	if err != nil {
		pool.Put(b)
		return nil, 0, err
	}
	return b, n, nil
}

// SyscallConn implements syscall.Conn, for credentials that look at what a client has sent and leave
// it to be read.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	if of, ok := c.Conn.(syscall.Conn); ok {
		return of.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// patient reads from a socket once there is something to read.
type patient interface {
	read(size int, pool mem.BufferPool) (*[]byte, int, error)
}

// tagging are credentials that put the connection into what the handshake says of the peer, so
// that streams find it.
type tagging struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (t tagging) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, info, err := t.TransportCredentials.ServerHandshake(raw)
	of, ok := raw.(*conn)
	if ok && err == nil {
		of.proof = proofOf(info)
		err = of.doors.identified(of, info)
	}
	switch {
	case err != nil || !ok:
	case c == raw:
		of.plain = true
	default:
		c = secured{c, &of.flow}
	}
	return c, tag{info, of}, err
}

// Clone implements credentials.TransportCredentials.
func (t tagging) Clone() credentials.TransportCredentials {
	return tagging{t.TransportCredentials.Clone()}
}

// tag is the result of a handshake, and its connection.
type tag struct {
	credentials.AuthInfo
	conn *conn
}

// hangUp closes the connection of a stream if it carries no other. A client that does not read
// does not receive the end of its stream either, and gRPC keeps what it has not read until the
// connection closes.
func (s *Server) hangUp(st *stream) {
	if st.conn == nil {
		return
	}
	s.mu.Lock()
	others := st.conn.streams
	if s.streams[st.id] == st { // otherwise its handler was faster
		others--
	}
	s.mu.Unlock()
	if others == 0 {
		st.conn.Close()
	}
}
