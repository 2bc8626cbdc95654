package upstream

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
)

// unacknowledged is how long written data may stay unacknowledged: less than the
// time after which a name that is not answered does not exist (UP-13).
func unacknowledged(missing time.Duration) time.Duration {
	const most = 10 * time.Second
	if missing <= 0 {
		return most
	}
	return min(most, missing*2/3)
}

// dialTCP connects to a TCP address or a Unix socket, and has TCP find out about a
// peer that has gone while nothing is sent (UP-13).
func dialTCP(ctx context.Context, address string) (net.Conn, error) {
	d := net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3},
	}
	network := "tcp"
	if path, ok := strings.CutPrefix(address, "unix:"); ok { // as gRPC's resolver hands on a Unix socket
		network, address = "unix", strings.TrimPrefix(path, "//")
	}
	return d.DialContext(ctx, network, address)
}

// wire is a connection of the network as gRPC gets it. gRPC hides which one an RPC
// is on, and addresses alone do not tell: on Unix sockets they are all alike, and
// after a GOAWAY a channel has two. But it hands on the local address of the one it
// used (peer.LocalAddr), through TLS too; so that names the wire.
//
// gRPC does not see the *net.TCPConn any more: what is to be set on it, we set.
type wire struct {
	net.Conn
	over     func()       // called when it is closed, once
	read     atomic.Int64 // bytes that have come
	messages atomic.Int64 // responses that have come, on all its streams

	// Guarded by Conn.mu.
	check    *checking // that is under way; nil: none
	answered bool      // a check, and not with UNAVAILABLE
}

// wireAddr is a local address that knows whose it is.
type wireAddr struct {
	net.Addr
	wire *wire
}

func (w *wire) Close() error {
	w.over()
	return w.Conn.Close()
}

func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	w.read.Add(int64(n))
	return n, err
}

func (w *wire) LocalAddr() net.Addr { return wireAddr{w.Conn.LocalAddr(), w} }

// wireOf is what a stream that has begun is on, also before anything came on it;
// nil: not known. gRPC does not move the stream to another one from then on.
func wireOf(s grpc.ClientStream) *wire {
	if p, ok := peer.FromContext(s.Context()); ok {
		if a, ok := p.LocalAddr.(wireAddr); ok {
			return a.wire
		}
	}
	return nil
}
