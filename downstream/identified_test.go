package downstream

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
)

// TestHandshakesSayWhoseConnectionsAre: before the handshake connections are their address's, and then their identity's. One whose
// identity has to wait is not let in, nor does its address wait.
func TestHandshakesSayWhoseConnectionsAre(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	d := newDoors(func() *ServerConfig { return &ServerConfig{} }, log, nobody{}, newReading(1<<20, log, nobody{}))
	proves := func(name string) credentials.AuthInfo {
		return credentials.TLSInfo{State: tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{DNSNames: []string{name}}}}}}
	}
	come := func(name string) (*conn, error) {
		raw, client := net.Pipe()
		client.Close()
		c := newConn(from{raw, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}}, d)
		if !d.enter(c) {
			t.Fatalf("%s was not let in", name)
		}
		t.Cleanup(func() { c.Close() })
		return c, d.identified(c, proves(name))
	}
	a, errA := come("a")
	b, errB := come("b")
	for _, c := range []struct {
		conn *conn
		err  error
		want string
	}{{a, errA, "dns:a"}, {b, errB, "dns:b"}} {
		if holder, exempt := c.conn.entry.Holder(); holder != c.want || exempt || c.err != nil || d.entries.Oldest(c.conn.entry) != nil {
			t.Errorf("it is %q's, %v; %v", holder, exempt, c.err)
		}
	}
	d.flooded(a)
	if _, err := come("a"); err == nil {
		t.Error("an identity need not wait")
	}
	if _, err := come("c"); err != nil || d.waits.has("192.0.2.1", time.Now()) {
		t.Errorf("another identity at the address waits: %v", err)
	}
}
