package downstream

import (
	"math/rand/v2"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

// tagging are credentials that let streams find their connection again, in what the
// handshake said of the peer. The connection itself stays what it is: gRPC takes a read
// buffer from a pool, once there is something to read, only for those of package net,
// and else each silent client has one of 32 KiB.
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

// tag is what a handshake said, and whose it was.
type tag struct {
	credentials.AuthInfo
	conn *conn
}

// conn is a client's connection, below TLS.
type conn struct {
	net.Conn
	since   time.Time
	streams int // that it carries; guarded by Server.mu
}

// A connection's life, as parts of its age limit. First gRPC tells the client to
// open its next streams elsewhere (GOAWAY); clients go on with the streams they
// have, so these are then ended one by one; what is left, such as a stream without
// an end of its own, is cut off with the connection. gRPC adds 10 % of jitter to
// the first step by itself, and the second begins when that has surely been.
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

// endOf draws when a stream of a connection is to end.
func (c *conn) endOf(age time.Duration) time.Time {
	return c.since.Add(portion(age, endFrom+(endTo-endFrom)*rand.Float64()))
}

func portion(d time.Duration, fraction float64) time.Duration {
	return time.Duration(fraction * float64(d))
}

// hangUp closes the connection of a stream if it carries nothing else. A client
// that does not read does not take in the end of its stream either: until the
// connection closes, gRPC keeps what it has not taken.
func (s *Server) hangUp(st *stream) {
	if st.conn == nil {
		return
	}
	s.mu.Lock()
	others := st.conn.streams
	if s.streams[st.id] == st { // else its handler was faster
		others--
	}
	s.mu.Unlock()
	if others == 0 {
		st.conn.Close()
	}
}
