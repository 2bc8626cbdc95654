package relay

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestListenLeavesOthersAlone: a file is no socket, and a socket that does not answer just now is not
// a dead one.
func TestListenLeavesOthersAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen("unix://" + file); err == nil || !strings.Contains(err.Error(), "is no socket") || errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a file: %v", err)
	}
	busy := filepath.Join(t.TempDir(), "s") // a live one with a full backlog
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: busy}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if c, err := net.Dial("unix", busy); err == nil {
			defer c.Close()
		}
	}
	if l, err := Listen("unix://" + busy); err == nil {
		l.Close()
		t.Error("the socket of a live process was taken away")
	}
}
