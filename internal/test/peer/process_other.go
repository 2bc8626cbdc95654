//go:build !linux

package peer

import "syscall"

func diesWithTest() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
