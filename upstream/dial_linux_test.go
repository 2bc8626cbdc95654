package upstream

import (
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestDeadPeersAreNoticed: a connection to the control plane probes a silent peer,
// and gives one up that does not acknowledge what it is sent (UP-13).
func TestDeadPeersAreNoticed(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := dialTCP(t.Context(), listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	w, err := newWire(conn, unacknowledged(15*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for _, option := range []struct {
		what              string
		level, name, want int
	}{
		{"keepalive", unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{"seconds of silence before a probe", unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 30},
		{"seconds between probes", unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 10},
		{"probes", unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3},
		{"milliseconds without acknowledgement", unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 10_000},
	} {
		var got int
		if control := raw.Control(func(fd uintptr) { got, err = unix.GetsockoptInt(int(fd), option.level, option.name) }); control != nil || err != nil {
			t.Fatal(option.what, control, err)
		}
		if got != option.want {
			t.Errorf("%s: %d, want %d", option.what, got, option.want)
		}
	}
}
