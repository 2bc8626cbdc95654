//go:build linux

// Package h2 owns the connections of cheap clients: as much HTTP/2 as a gRPC stream
// needs, with one goroutine a connection, and no buffer of its own while nothing
// comes. It never keeps a message: its bytes go to a Receiver as they come. It knows
// no padding, no push, no compression, and no retries. Over TLS a connection
// does have a buffer.
package h2

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/http2"
)

// Receiver takes in the messages of one stream. Its methods are called on the
// connection's goroutine.
type Receiver interface {
	// Begin begins a message of a size, Feed is told its bytes.
	Begin(size int)
	Feed(b []byte, at time.Time) error
	// End ends it. What is appended to reply, if anything, is sent as a message.
	End(reply []byte) ([]byte, error)
	// Closed ends the stream, or the connection before the stream has ended.
	Closed(err error)
}

// Traffic counts bytes on the wire.
type Traffic struct{ In, Out atomic.Int64 }

// The windows, for what servers send. They are fixed, as in Envoy: a client that
// estimates them pings the server for it, which would be measured, too.
const (
	streamWindow = 1 << 20
	connWindow   = 8 << 20
)

const (
	frameHeader   = 9
	maxFrame      = 16 << 10 // nobody may send larger ones unasked
	messagePrefix = 5        // gRPC's: a flag and a length
	firstWindow   = 65_535   // of RFC 9113, until a server says otherwise
	chunk         = 64 << 10 // what is read at once
)

// chunks are the buffers that connections read into, lent while there is something
// to read.
var chunks = sync.Pool{New: func() any { b := make([]byte, chunk); return &b }}

// Conn is a connection. Open and Send may be called from any goroutine; Run is
// called once.
type Conn struct {
	net     net.Conn
	raw     syscall.RawConn // nil over TLS
	scheme  string
	traffic *Traffic

	// Of the reader.
	head     [frameHeader]byte
	headHas  int
	frame    http2.FrameHeader
	left     int    // of the frame's payload
	payload  []byte // of a frame that is not DATA
	block    []byte // of headers that are continued
	credit   int    // received, and not yet said so
	scratch  []byte // replies are made in it
	received time.Time

	mu      sync.Mutex // of the writer
	out     []byte     // to be written
	window  int        // of the connection, for what is sent
	initial int        // of new streams
	streams []*Stream  // stream 1, 3, 5, …
	gone    error
}

// Stream is one gRPC stream.
type Stream struct {
	conn     *Conn
	id       uint32
	receiver Receiver

	// Of the reader.
	prefix    [messagePrefix]byte
	prefixHas int
	left      int // of the message
	credit    int
	ended     bool

	// Guarded by the connection's mutex.
	window int
	queue  []byte
}

// Dial connects, over TLS if a configuration is given, and begins to speak HTTP/2.
func Dial(address string, secure *tls.Config, t *Traffic) (*Conn, error) {
	d := net.Dialer{Timeout: dialWithin}
	nc, err := d.Dial("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("h2: %w", err)
	}
	c := &Conn{net: nc, scheme: "http", traffic: t, window: firstWindow, initial: firstWindow}
	if secure != nil {
		err = c.handshake(nc, address, secure)
	} else {
		c.raw, err = nc.(*net.TCPConn).SyscallConn()
	}
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("h2: %w", err)
	}
	c.out = append(c.out, http2.ClientPreface...)
	c.out = appendHeader(c.out, 18, http2.FrameSettings, 0, 0)
	c.out = appendSetting(c.out, http2.SettingEnablePush, 0)
	c.out = appendSetting(c.out, http2.SettingInitialWindowSize, streamWindow)
	// Without a table, headers can be read one block at a time.
	c.out = appendSetting(c.out, http2.SettingHeaderTableSize, 0)
	c.out = appendWindowUpdate(c.out, 0, connWindow-firstWindow)
	return c, nil
}

// dialWithin is how long connecting, and then the handshake, may take.
const dialWithin = 30 * time.Second

func (c *Conn) handshake(nc net.Conn, address string, secure *tls.Config) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	secure = secure.Clone()
	secure.ServerName, secure.NextProtos = host, []string{http2.NextProtoTLS}
	tc := tls.Client(nc, secure)
	ctx, cancel := context.WithTimeout(context.Background(), dialWithin)
	defer cancel()
	if err := tc.HandshakeContext(ctx); err != nil {
		return err
	}
	c.net, c.scheme = tc, "https"
	return nil
}

// Close ends the connection; Run returns.
func (c *Conn) Close() { c.net.Close() }

// Open opens a stream of a method; the first message is sent with it.
func (c *Conn) Open(method string, r Receiver, first ...[]byte) (*Stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone != nil {
		return nil, c.gone
	}
	s := &Stream{conn: c, id: uint32(2*len(c.streams) + 1), receiver: r, window: c.initial}
	c.streams = append(c.streams, s)
	block := headers(c.scheme, method)
	c.out = appendHeader(c.out, len(block), http2.FrameHeaders, http2.FlagHeadersEndHeaders, s.id)
	c.out = append(c.out, block...)
	for _, m := range first {
		s.enqueue(m)
	}
	return s, c.flush()
}

// Send sends a message.
func (s *Stream) Send(m []byte) error {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	if s.conn.gone != nil {
		return s.conn.gone
	}
	s.enqueue(m)
	return s.conn.flush()
}

// enqueue takes a message in, and frames as much as the windows allow.
func (s *Stream) enqueue(m []byte) {
	s.queue = append(s.queue, 0)
	s.queue = binary.BigEndian.AppendUint32(s.queue, uint32(len(m)))
	s.queue = append(s.queue, m...)
	s.pump()
}

func (s *Stream) pump() {
	c := s.conn
	for len(s.queue) > 0 {
		n := min(len(s.queue), s.window, c.window, maxFrame)
		if n <= 0 {
			return
		}
		c.out = appendHeader(c.out, n, http2.FrameData, 0, s.id)
		c.out = append(c.out, s.queue[:n]...)
		s.queue = s.queue[n:]
		s.window -= n
		c.window -= n
	}
	s.queue = nil
}

// flush writes what is to be written.
func (c *Conn) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	n, err := c.net.Write(c.out)
	c.traffic.Out.Add(int64(n))
	c.out = c.out[:0]
	if cap(c.out) > 4<<10 {
		c.out = nil
	}
	return err
}

// Run reads until the connection ends, and tells the streams.
func (c *Conn) Run() error {
	err := c.read()
	c.mu.Lock()
	c.gone = err
	streams := c.streams
	c.mu.Unlock()
	c.net.Close()
	for _, s := range streams {
		if !s.ended {
			s.ended = true
			s.receiver.Closed(err)
		}
	}
	return err
}

func (c *Conn) read() error {
	for {
		buf, n, err := c.next()
		if err == nil {
			c.received = time.Now()
			c.traffic.In.Add(int64(n))
			err = c.take((*buf)[:n])
			chunks.Put(buf)
		}
		c.mu.Lock()
		if ferr := c.flush(); err == nil {
			err = ferr
		}
		c.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// next waits until something has come. It borrows a buffer only then.
func (c *Conn) next() (buf *[]byte, n int, err error) {
	if c.raw == nil {
		buf = chunks.Get().(*[]byte)
		if n, err = c.net.Read(*buf); n > 0 {
			return buf, n, nil
		}
		chunks.Put(buf)
		return nil, 0, err
	}
	var failed error
	err = c.raw.Read(func(fd uintptr) bool {
		buf = chunks.Get().(*[]byte)
		for {
			n, failed = syscall.Read(int(fd), *buf)
			if failed != syscall.EINTR {
				break
			}
		}
		if failed == syscall.EAGAIN {
			chunks.Put(buf)
			return false
		}
		return true
	})
	switch {
	case err != nil:
		return nil, 0, err
	case failed != nil:
		chunks.Put(buf)
		return nil, 0, failed
	case n <= 0:
		chunks.Put(buf)
		return nil, 0, io.EOF
	}
	return buf, n, nil
}

// take takes in bytes, wherever a frame may begin or end in them.
func (c *Conn) take(b []byte) error {
	for len(b) > 0 {
		if c.headHas < frameHeader {
			n := copy(c.head[c.headHas:], b)
			c.headHas += n
			b = b[n:]
			if c.headHas < frameHeader {
				return nil
			}
			c.frame = http2.FrameHeader{
				Length: uint32(c.head[0])<<16 | uint32(c.head[1])<<8 | uint32(c.head[2]),
				Type:   http2.FrameType(c.head[3]), Flags: http2.Flags(c.head[4]),
				StreamID: binary.BigEndian.Uint32(c.head[5:]) & (1<<31 - 1),
			}
			c.left = int(c.frame.Length)
		}
		n := min(len(b), c.left)
		c.left -= n
		if c.frame.Type == http2.FrameData {
			if err := c.data(b[:n]); err != nil {
				return err
			}
		} else {
			c.payload = append(c.payload, b[:n]...)
		}
		b = b[n:]
		if c.left > 0 {
			return nil
		}
		c.headHas = 0
		if c.frame.Type != http2.FrameData {
			err := c.other(c.payload)
			c.payload = nil
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Conn) stream(id uint32) *Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := int(id-1) / 2; id%2 == 1 && i < len(c.streams) {
		return c.streams[i]
	}
	return nil
}

// data takes in a part of a DATA frame.
func (c *Conn) data(b []byte) error {
	if c.frame.Flags.Has(http2.FlagDataPadded) {
		return errors.New("h2: padded DATA frames are not supported")
	}
	s := c.stream(c.frame.StreamID)
	if s == nil {
		return fmt.Errorf("h2: DATA for stream %d, which was never opened", c.frame.StreamID)
	}
	c.credit += len(b)
	s.credit += len(b)
	if len(b) > 0 && (c.credit >= connWindow/2 || s.credit >= streamWindow/2) {
		c.mu.Lock()
		c.out = appendWindowUpdate(c.out, 0, c.credit)
		c.out = appendWindowUpdate(c.out, s.id, s.credit)
		c.mu.Unlock()
		c.credit, s.credit = 0, 0
	}
	return s.feed(b)
}

// feed cuts the stream's bytes into messages.
func (s *Stream) feed(b []byte) error {
	for len(b) > 0 {
		if s.prefixHas < messagePrefix {
			n := copy(s.prefix[s.prefixHas:], b)
			s.prefixHas += n
			b = b[n:]
			if s.prefixHas < messagePrefix {
				return nil
			}
			if s.prefix[0] != 0 {
				return errors.New("h2: compressed messages are not supported")
			}
			s.left = int(binary.BigEndian.Uint32(s.prefix[1:]))
			s.receiver.Begin(s.left)
		}
		n := min(len(b), s.left)
		if n > 0 {
			if err := s.receiver.Feed(b[:n], s.conn.received); err != nil {
				return err
			}
		}
		s.left -= n
		b = b[n:]
		if s.left > 0 {
			return nil
		}
		s.prefixHas = 0
		reply, err := s.receiver.End(s.conn.scratch[:0])
		if err != nil {
			return err
		}
		if s.conn.scratch = reply; len(reply) > 0 {
			s.conn.mu.Lock()
			s.enqueue(reply)
			s.conn.mu.Unlock()
		}
	}
	return nil
}
