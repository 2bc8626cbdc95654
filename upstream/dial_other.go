//go:build !linux

package upstream

import (
	"net"
	"time"
)

// setUserTimeout: this system has no TCP_USER_TIMEOUT; TCP keepalive remains.
func setUserTimeout(net.Conn, time.Duration) error { return nil }
