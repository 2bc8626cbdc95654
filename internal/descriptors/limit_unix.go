//go:build unix

package descriptors

import (
	"math"
	"syscall"
)

// Limit is how many descriptors the process may have open; 0: that is not known. Go has raised
// the soft limit to the hard one.
func Limit() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0
	}
	return int(min(uint64(l.Cur), math.MaxInt32))
}
