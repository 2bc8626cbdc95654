package downstream

import (
	"net"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

// tagging are credentials that put the connection into what the handshake says of the peer, so
// that streams find it. gRPC must see the connection of package net itself: only for those does
// it take a read buffer from a pool when there is something to read; any other silent connection
// keeps one of 32 KiB.
type tagging struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (t tagging) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if f, ok := raw.(*fresh); ok {
		raw = f.Conn
	}
	c, info, err := t.TransportCredentials.ServerHandshake(raw)
	return c, tag{info, &conn{Conn: raw, since: time.Now()}}, err
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

// conn is a client's connection, below TLS.
type conn struct {
	net.Conn
	since   time.Time
	streams int // open streams; guarded by Server.mu
}

// The parts of a connection's age limit. First gRPC tells the client to open its next streams
// elsewhere (GOAWAY). Clients go on with the streams that they have, so the relay then ends these
// one by one. What is left, such as a stream that has no such end, is cut off with the
// connection. gRPC adds 10 % of jitter to the first step, and the second begins when that is
// surely over.
const (
	goAwayAt  = 0.8
	endFrom   = 0.9
	endTo     = 1.1
	cutOffAt  = 1.3
	goAwayEnd = 1.1 * goAwayAt // the latest, with gRPC's jitter
)

// ageLimit adds the age limit to gRPC's parameters.
func ageLimit(p keepalive.ServerParameters, age time.Duration) keepalive.ServerParameters {
	if age > 0 {
		p.MaxConnectionAge = portion(age, goAwayAt)
		p.MaxConnectionAgeGrace = portion(age, cutOffAt-goAwayEnd)
	}
	return p
}

func portion(d time.Duration, fraction float64) time.Duration {
	return time.Duration(fraction * float64(d))
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
