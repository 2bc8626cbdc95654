//go:build !linux

package envoy

import (
	"net"
	"testing"
)

// reserve returns a loopback address on which nobody listens just now.
func reserve(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
