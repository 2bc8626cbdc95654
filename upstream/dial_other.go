//go:build !linux

package upstream

import (
	"context"
	"syscall"
)

// setUserTimeout: this system has no TCP_USER_TIMEOUT; TCP keepalive remains.
func setUserTimeout(context.Context, string, string, syscall.RawConn) error { return nil }
