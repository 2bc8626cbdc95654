package origin

import (
	"context"
	"net"
	"sync"
)

// pipe is a listener within the process.
type pipe struct {
	conns  chan net.Conn
	opened chan struct{} // closed when somebody may connect
	closed chan struct{}
	once   sync.Once
	open   func()
}

func newPipe() *pipe {
	p := &pipe{conns: make(chan net.Conn), opened: make(chan struct{}), closed: make(chan struct{})}
	p.open = sync.OnceFunc(func() { close(p.opened) })
	return p
}

func (p *pipe) dial(ctx context.Context) (net.Conn, error) {
	select {
	case <-p.opened:
	default:
		return nil, errClosed
	}
	ours, theirs := net.Pipe()
	select {
	case p.conns <- inside{theirs}:
		return inside{ours}, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener.
func (p *pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipe) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements net.Listener.
func (p *pipe) Addr() net.Addr { return within }

// within is an address on this host, so that the relay counts as a relay (NODE-11).
var within = &net.UnixAddr{Net: "unix", Name: "in the process"}

// inside is one end of a connection.
type inside struct{ net.Conn }

func (inside) LocalAddr() net.Addr  { return within }
func (inside) RemoteAddr() net.Addr { return within }
