package realenvoy

import "syscall"

// ownGroup keeps the terminal's signals from a child, and has it die with the test.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
