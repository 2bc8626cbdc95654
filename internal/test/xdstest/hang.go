package xdstest

import (
	"maps"
	"net"
	"slices"
	"time"
)

// A network that hangs behaves like a peer that was stopped, or cut off without a RST: its connections stay, new ones are
// made, and nothing that is written arrives, on either side. Both ends write without waiting, as into a socket's buffer.
// What one end closes the other does not notice.

// Hang lets nothing through until Wake.
func (n *Network) Hang() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hung = true
}

// Hung reports whether nothing gets through.
func (n *Network) Hung() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.hung
}

// Wake lets through what was held, in the order in which it was written, and then whatever comes. pause is called after each
// piece, so that the peer reads them one by one and its behaviour does not depend on chance.
func (n *Network) Wake(pause func()) {
	for {
		n.mu.Lock()
		if len(n.held) == 0 {
			n.hung = false
			n.mu.Unlock()
			return
		}
		next := n.held[0]
		n.held = n.held[1:]
		n.mu.Unlock()
		next()
		pause()
	}
}

// hold keeps a deed for Wake, if the network hangs.
func (n *Network) hold(deed func()) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hung {
		n.held = append(n.held, deed)
	}
	return n.hung
}

// write writes to a connection of the network, or holds what is written. An error means that the peer has closed; the reader
// notices that.
func (n *Network) write(c net.Conn, b []byte) (int, error) {
	copied := append([]byte(nil), b...)
	if n.hold(func() { _, _ = c.Write(copied) }) {
		return len(b), nil
	}
	return c.Write(b)
}

// Drop kills every connection, as the end of the dialling process does; a listener hears of it even if the network hangs.
func (n *Network) Drop() {
	n.mu.Lock()
	n.held = nil
	victims := slices.Collect(maps.Keys(n.conns))
	n.mu.Unlock()
	for _, c := range victims {
		_ = n.close(c) // what it kept from its peer does not matter any more
	}
}

// closeUnheard closes the dialler's end of a connection that hangs: its own reader hears of it now, the peer after Wake.
func (c *networkConn) closeUnheard() bool {
	if !c.network.hold(func() { c.network.close(c) }) {
		return false
	}
	c.closed.Store(true)
	_ = c.Conn.SetReadDeadline(time.Now()) // bufconn's never fails
	return true
}

func (c *networkConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && c.closed.Load() {
		err = net.ErrClosed
	}
	return n, err
}
