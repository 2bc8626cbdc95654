//go:build unix

package relay

import (
	"errors"
	"syscall"
)

// peek reads from a socket what stays there to be read. done is false if nothing has come yet.
func peek(fd uintptr, into []byte) (n int, done bool) {
	n, _, err := syscall.Recvfrom(int(fd), into, syscall.MSG_PEEK)
	return n, !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR)
}
