package peer

import "syscall"

// diesWithTest has a process end with the thread that starts it, however that ends.
func diesWithTest() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
