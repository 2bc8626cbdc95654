//go:build unix

package preflight

import "syscall"

// fileLimit is how many files the process may have open. Go has raised the soft limit to
// the hard one, as it will for the relay.
func fileLimit() (uint64, bool) {
	var l syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l)
	return uint64(l.Cur), err == nil
}
