//go:build unix && !aix && !solaris

package snapshot

import (
	"errors"
	"os"
	"syscall"
)

// lock excludes other relays from a directory until it is closed or the process
// ends. A file system without locks is no reason to write no snapshot.
func lock(dir *os.File) error {
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return errShared
	}
	return nil
}
