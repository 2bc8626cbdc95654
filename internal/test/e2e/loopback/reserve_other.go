//go:build !linux

package loopback

import (
	"net"
	"testing"
)

// Reserve returns a loopback address on which nobody listens just now.
func Reserve(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
