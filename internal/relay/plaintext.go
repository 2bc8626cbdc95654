package relay

import (
	"bytes"
	"errors"
	"net"
	"syscall"

	"google.golang.org/grpc/credentials"
)

// serverPlain are credentials towards clients without TLS. A client that speaks something else is
// named in the log: gRPC tells nobody its address.
type serverPlain struct {
	credentials.TransportCredentials
	handshakes *handshakes
}

// What a client does that does not speak plaintext gRPC.
var (
	errSpeaksTLS = errors.New("it speaks TLS, and downstream.tls is not set")
	errNoHTTP2   = errors.New("it does not speak HTTP/2, which gRPC needs; it may take the port for another one")
)

// ServerHandshake implements credentials.TransportCredentials.
func (s *serverPlain) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	first := firstBytes(raw)
	if err := judge(first); err != nil {
		s.handshakes.misaddressed(raw, err, first)
		return nil, nil, err
	}
	return s.TransportCredentials.ServerHandshake(raw)
}

// Clone implements credentials.TransportCredentials.
func (s *serverPlain) Clone() credentials.TransportCredentials {
	return &serverPlain{s.TransportCredentials.Clone(), s.handshakes}
}

// judge says what is wrong with the first bytes of a client, of which there may be few.
func judge(first []byte) error {
	const (
		preface  = "PRI * HTTP/2.0" // RFC 9113 §3.4
		tlsHello = 0x16             // RFC 8446 §5.1: a handshake record
	)
	switch n := min(len(first), len(preface)); {
	case bytes.Equal(first[:n], []byte(preface[:n])):
		return nil
	case first[0] == tlsHello:
		return errSpeaksTLS
	}
	return errNoHTTP2
}

// firstBytes waits for a connection's first bytes, and leaves them to be read by gRPC. A wrapper that
// hands them on would have to read for gRPC as downstream's does, or gRPC would keep a read buffer for
// each silent client. It returns nothing if the client has gone, and where the connection is none of
// the operating system.
func firstBytes(raw net.Conn) []byte {
	c, ok := raw.(syscall.Conn)
	if !ok {
		return nil
	}
	rc, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	var first [16]byte
	n := 0
	err = rc.Read(func(fd uintptr) (done bool) {
		n, done = peek(fd, first[:])
		return done
	})
	if err != nil || n < 0 {
		return nil // gRPC meets the same, or the time for the handshake is over
	}
	return first[:n]
}
