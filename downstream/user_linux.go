package downstream

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// userOf says as which user the client of a Unix socket runs that has connected, "unix:uid=N". It is "" for
// other connections. The system tells it, and the client cannot change it afterwards.
func userOf(raw net.Conn) string {
	socket, ok := raw.(*net.UnixConn)
	if !ok {
		return ""
	}
	of, err := socket.SyscallConn()
	if err != nil {
		return ""
	}
	user := ""
	_ = of.Control(func(fd uintptr) { // an error means that the connection is closed
		if who, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			user = fmt.Sprint("unix:uid=", who.Uid)
		}
	})
	return user
}
