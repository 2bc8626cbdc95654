//go:build unix

package snapshot

import (
	"io/fs"
	"os"
	"syscall"
)

// ours: the file belongs to the user that the relay runs as, or to root.
func ours(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return !ok || st.Uid == 0 || int(st.Uid) == os.Geteuid()
}
