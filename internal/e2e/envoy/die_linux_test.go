package envoy

import "syscall"

// dieWithTest has a child die with the test, however the test dies.
func dieWithTest() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
