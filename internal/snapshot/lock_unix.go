//go:build unix && !aix && !solaris

package snapshot

import (
	"errors"
	"os"
	"syscall"
)

// lock makes whoever else writes to a directory fail, until it is closed or the
// process ends. Not every file system has locks; that is no reason to write nothing.
func lock(dir *os.File) error {
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return errShared
	}
	return nil
}
