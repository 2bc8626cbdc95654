package relay

import (
	"context"
	"net"

	"google.golang.org/grpc/credentials"
)

// ReceivedObserver hears how many bytes come from a control plane of the list, after TLS: the frames of HTTP/2, with
// messages as they are compressed. Its method is called from many goroutines, for each piece that is read.
type ReceivedObserver interface {
	UpstreamReceived(entry string, bytes int)
}

// counting are credentials towards an entry whose connections count what they receive. Package upstream makes the
// connections, and is given the credentials, which see each of them after its handshake.
type counting struct {
	credentials.TransportCredentials
	entry string
	to    ReceivedObserver
}

// counted has the connections to an entry count; nil: nobody wants to know.
func counted(c credentials.TransportCredentials, entry string, to ReceivedObserver) credentials.TransportCredentials {
	if to == nil {
		return c
	}
	return &counting{c, entry, to}
}

// ClientHandshake implements credentials.TransportCredentials.
func (c *counting) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return conn, info, err
	}
	return &countingConn{conn, c}, info, nil
}

// Clone implements credentials.TransportCredentials.
func (c *counting) Clone() credentials.TransportCredentials {
	return &counting{c.TransportCredentials.Clone(), c.entry, c.to}
}

type countingConn struct {
	net.Conn
	by *counting
}

func (c *countingConn) Read(p []byte) (n int, err error) {
	if n, err = c.Conn.Read(p); n > 0 {
		c.by.to.UpstreamReceived(c.by.entry, n)
	}
	return n, err
}
