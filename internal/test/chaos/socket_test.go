//go:build linux

package chaos

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// socket is a client's end of a connection. It can stop to read, and knows when
// what came last came.
type socket struct {
	net.Conn
	stalled atomic.Pointer[chan struct{}] // nothing is read until this is closed

	once   sync.Once
	closed chan struct{} // by this end

	lastData atomic.Int64 // when a response, or a part of one, came; in ns since 1970
	ended    atomic.Int64 // when the other end closed it
}

// dataSize tells responses from what HTTP/2 says on its own account.
const dataSize = 512

func (s *socket) Read(b []byte) (int, error) {
	if gate := s.stalled.Load(); gate != nil {
		select {
		case <-*gate:
		case <-s.closed:
		}
	}
	n, err := s.Conn.Read(b)
	if n >= dataSize {
		s.lastData.Store(time.Now().UnixNano())
	}
	if err != nil {
		s.ended.CompareAndSwap(0, time.Now().UnixNano())
	}
	return n, err
}

func (s *socket) Close() error {
	s.once.Do(func() { close(s.closed) })
	return s.Conn.Close()
}

// silence is how long the other end held a connection after its last response; ok
// if it has closed it at all.
func (s *socket) silence() (d time.Duration, ok bool) {
	last, end := s.lastData.Load(), s.ended.Load()
	return time.Duration(end - last), end != 0 && last != 0
}
