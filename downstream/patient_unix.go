//go:build unix

package downstream

import (
	"io"
	"net"
	"syscall"

	"google.golang.org/grpc/mem"
)

// socket is a patient reader of a file descriptor, as gRPC has one for connections of package net.
type socket struct {
	raw syscall.RawConn
	try func(fd uintptr) (done bool) // made once: one for each read would be garbage

	// The read in progress.
	size int
	pool mem.BufferPool
	buf  *[]byte
	n    int
	err  error
}

// newPatient returns nil for a connection that has no file descriptor.
func newPatient(c net.Conn) patient {
	of, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := of.SyscallConn()
	if err != nil {
		return nil
	}
	s := &socket{raw: raw}
	s.try = func(fd uintptr) bool {
		s.buf = s.pool.Get(s.size)
		into := (*s.buf)[:min(s.size, len(*s.buf))] // gRPC's pool may have its own buffer to give, which is longer
		for s.n, s.err = syscall.Read(int(fd), into); s.err == syscall.EINTR; {
			s.n, s.err = syscall.Read(int(fd), into)
		}
		if s.err != nil {
			s.pool.Put(s.buf)
			s.buf = nil
		}
		return s.err != syscall.EAGAIN && s.err != syscall.EWOULDBLOCK
	}
	return s
}

// read has one caller at a time.
func (s *socket) read(size int, pool mem.BufferPool) (*[]byte, int, error) {
	s.size, s.pool, s.buf, s.n, s.err = size, pool, nil, 0, nil
	err := s.raw.Read(s.try)
	b, n := s.buf, s.n
	if err == nil {
		err = s.err
	}
	s.pool, s.buf, s.err = nil, nil, nil
	switch {
	case err == nil && n > 0:
		return b, n, nil
	case err == nil:
		err = io.EOF // which is no error to the system
	}
	if b != nil {
		pool.Put(b)
	}
	return nil, 0, err
}
