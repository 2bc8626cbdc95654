package downstream

import (
	"net"
	"sync"
	"time"
)

// doors are the listeners of a Server, and the connections whose handshake is under way.
// gRPC waits for these when it stops, for two minutes if somebody connects and says
// nothing; meanwhile no client would be told to go, nor the process end.
type doors struct {
	mu        sync.Mutex
	listeners []*door
	fresh     map[*fresh]bool
	shut      bool
}

// door is a listener that tells when it is closed.
type door struct {
	net.Listener
	doors  *doors
	once   sync.Once
	closed chan struct{}
}

// fresh is a connection as gRPC's server has it until the handshake is over. gRPC lifts the
// deadline then; tagging hands on what is inside.
type fresh struct {
	net.Conn
	doors *doors
}

func newDoors() *doors { return &doors{fresh: make(map[*fresh]bool)} }

// add is a listener as gRPC is to have it.
func (d *doors) add(l net.Listener) net.Listener {
	d.mu.Lock()
	defer d.mu.Unlock()
	o := &door{Listener: l, doors: d, closed: make(chan struct{})}
	d.listeners = append(d.listeners, o)
	return o
}

// close waits until all listeners are closed, which gRPC does, and hangs up on whoever has
// not been let in yet.
func (d *doors) close() {
	d.mu.Lock()
	d.shut = true
	listeners := d.listeners
	for f := range d.fresh {
		f.Conn.Close()
	}
	d.mu.Unlock()
	for _, l := range listeners {
		<-l.closed
	}
}

// Accept implements net.Listener.
func (l *door) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	f := &fresh{c, l.doors}
	l.doors.mu.Lock()
	defer l.doors.mu.Unlock()
	if l.doors.shut {
		c.Close() // gRPC finds out
	} else {
		l.doors.fresh[f] = true
	}
	return f, nil
}

// Close implements net.Listener.
func (l *door) Close() error {
	defer l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// SetDeadline implements net.Conn.
func (f *fresh) SetDeadline(t time.Time) error {
	if t.IsZero() {
		f.over()
	}
	return f.Conn.SetDeadline(t)
}

// Close implements net.Conn.
func (f *fresh) Close() error {
	f.over()
	return f.Conn.Close()
}

func (f *fresh) over() {
	f.doors.mu.Lock()
	defer f.doors.mu.Unlock()
	delete(f.doors.fresh, f)
}
