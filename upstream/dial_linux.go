package upstream

import (
	"cmp"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// setUserTimeout ends a TCP connection on which sent data stays unacknowledged for so long (UP-13).
func setUserTimeout(conn net.Conn, timeout time.Duration) error {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(timeout.Milliseconds()))
	})
	return cmp.Or(err, failed)
}
