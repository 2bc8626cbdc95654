package downstream

import (
	"net"
	"sync"
	"time"
)

// doors are the listeners of a Server, and the connections whose handshake is not finished. When
// gRPC stops it waits for these, for two minutes if a client connects and sends nothing.
// Meanwhile no client would be sent away, and the process would not end.
type doors struct {
	mu        sync.Mutex
	listeners []*door
	fresh     map[*fresh]bool
	shut      bool
}

// door is a listener that signals when it is closed.
type door struct {
	net.Listener
	doors  *doors
	once   sync.Once
	closed chan struct{}
}

// fresh is a connection until its handshake is finished, when gRPC lifts the deadline. tagging
// then replaces it by the connection inside.
type fresh struct {
	net.Conn
	doors *doors
}

// add returns the listener that gRPC gets.
func (d *doors) add(l net.Listener) net.Listener {
	d.mu.Lock()
	defer d.mu.Unlock()
	o := &door{Listener: l, doors: d, closed: make(chan struct{})}
	d.listeners = append(d.listeners, o)
	return o
}

// close waits until gRPC has closed all listeners, and closes the connections whose handshake is
// not finished.
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
		c.Close() // gRPC notices
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
