package upstream

import (
	"context"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// option reads a socket's option.
func option(t *testing.T, conn net.Conn, level, name int) (value int) {
	t.Helper()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if control := raw.Control(func(fd uintptr) { value, err = unix.GetsockoptInt(int(fd), level, name) }); control != nil || err != nil {
		t.Fatal(control, err)
	}
	return value
}

// TestDeadPeersAreNoticed: a connection to the control plane probes a silent peer,
// and gives one up that does not acknowledge what it is sent (UP-13).
func TestDeadPeersAreNoticed(t *testing.T) {
	p := serve(t, loopback(t), nil)
	c := reach(t, Endpoint{Target: p.address, Missing: 15 * time.Second})
	s, _ := open(t, c, 1)
	conn := wireOf(s.ClientStream).Conn
	for _, o := range []struct {
		what              string
		level, name, want int
	}{
		{"keepalive", unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{"seconds of silence before a probe", unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 30},
		{"seconds between probes", unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 10},
		{"probes", unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3},
		{"milliseconds without acknowledgement", unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 10_000},
	} {
		if got := option(t, conn, o.level, o.name); got != o.want {
			t.Errorf("%s: %d, want %d", o.what, got, o.want)
		}
	}
}

// TestDeadPeersAreNoticedHoweverReached: what gRPC cannot set on a connection that is
// wrapped is set by us, whoever has dialled, with TLS and with HTTP/2 keepalive (UP-13).
func TestDeadPeersAreNoticedHoweverReached(t *testing.T) {
	cert, pool := certificate(t)
	p := serve(t, loopback(t), nil, grpc.Creds(credentials.NewServerTLSFromCert(&cert)))
	plain := serve(t, loopback(t), nil)
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", address)
	}
	for name, e := range map[string]Endpoint{
		"a dialer":  {Target: plain.address, Credentials: insecure.NewCredentials(), Dial: dial},
		"TLS":       {Target: p.address, Credentials: credentials.NewClientTLSFromCert(pool, "localhost")},
		"keepalive": {Target: plain.address, Credentials: insecure.NewCredentials(), Keepalive: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			e.Missing = 3 * time.Second
			s, _ := open(t, reach(t, e), 1)
			if got := option(t, wireOf(s.ClientStream).Conn, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT); got != 2000 {
				t.Errorf("%d ms", got)
			}
		})
	}
}
