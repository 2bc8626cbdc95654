//go:build unix

package snapshot

import (
	"fmt"
	"syscall"
)

// mayWrite says why no file can be made in a directory.
func mayWrite(dir string) error {
	const write, search = 2, 1 // W_OK and X_OK
	if err := syscall.Access(dir, write|search); err != nil {
		return fmt.Errorf("%s cannot be written to: %w", dir, err)
	}
	return nil
}
