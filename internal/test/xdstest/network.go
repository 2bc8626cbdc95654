package xdstest

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"google.golang.org/grpc/test/bufconn"
)

// Network is a piece of in-memory network with one listener on it. Unlike real sockets it works in a synctest bubble, and
// unlike a bare bufconn it can go down or hang, and its connections have IP addresses.
type Network struct {
	peers chan net.Addr // of the connections being accepted, in order

	dialing sync.Mutex // held to make a connection, so that peers keeps the order

	mu       sync.Mutex
	listener *bufconn.Listener
	down     bool
	hung     bool                  // hang.go
	held     []func()              // what was said since, on either side
	conns    map[*networkConn]bool // client ends
}

// NewNetwork makes a network that is up.
func NewNetwork() *Network {
	return &Network{listener: bufconn.Listen(1 << 20), peers: make(chan net.Addr, 1), conns: map[*networkConn]bool{}}
}

// Listener is the server's end.
func (n *Network) Listener() net.Listener { return &networkListener{n.bufconn(), n} }

// Relisten is the server's end once more, after the first was closed.
func (n *Network) Relisten() net.Listener {
	n.mu.Lock()
	n.listener = bufconn.Listen(1 << 20)
	n.mu.Unlock()
	return n.Listener()
}

func (n *Network) bufconn() *bufconn.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.listener
}

// Dial connects from the loopback address; the address dialled does not matter.
func (n *Network) Dial(ctx context.Context, _ string) (net.Conn, error) {
	return n.DialFrom(ctx, net.IPv4(127, 0, 0, 1))
}

// DialFrom connects from that address. It refuses while the network is down.
func (n *Network) DialFrom(ctx context.Context, from net.IP) (net.Conn, error) {
	n.dialing.Lock()
	defer n.dialing.Unlock()
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	if n.isDown() {
		return nil, refused
	}
	conn, err := n.bufconn().DialContext(ctx)
	if err != nil {
		return nil, err
	}
	n.peers <- &net.TCPAddr{IP: from, Port: 40000}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		conn.Close()
		return nil, refused
	}
	c := &networkConn{Conn: conn, network: n}
	n.conns[c] = true
	return c, nil
}

func (n *Network) isDown() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.down
}

// Down kills every connection and refuses new ones until Up. Whoever hung is dead now, and will not wake.
func (n *Network) Down() {
	n.mu.Lock()
	n.down, n.hung = true, false
	n.mu.Unlock()
	n.Drop()
}

// Up lets connections be made again.
func (n *Network) Up() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = false
}

type networkListener struct {
	listener *bufconn.Listener
	network  *Network
}

func (l *networkListener) Accept() (net.Conn, error) {
	conn, err := l.listener.Accept()
	if err != nil {
		return nil, errors.Join(net.ErrClosed, err) // bufconn says this of nothing else
	}
	return &peerConn{Conn: conn, peer: <-l.network.peers, network: l.network}, nil
}

func (l *networkListener) Close() error { return l.listener.Close() }
func (l *networkListener) Addr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 18000}
}

// networkConn is a client's end; closing it takes it off the network.
type networkConn struct {
	net.Conn
	network *Network
	closed  atomic.Bool // while the network hung
}

func (c *networkConn) Write(b []byte) (int, error) { return c.network.write(c.Conn, b) }

func (c *networkConn) Close() error {
	if c.closeUnheard() {
		return nil
	}
	return c.network.close(c)
}

func (n *Network) close(c *networkConn) error {
	n.mu.Lock()
	delete(n.conns, c)
	n.mu.Unlock()
	return c.Conn.Close()
}

// peerConn is a server's end, which knows its peer's address.
type peerConn struct {
	net.Conn
	peer    net.Addr
	network *Network
}

func (c *peerConn) Write(b []byte) (int, error) { return c.network.write(c.Conn, b) }
func (c *peerConn) RemoteAddr() net.Addr        { return c.peer }
