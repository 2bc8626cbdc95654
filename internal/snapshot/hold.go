package snapshot

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// holdName is the file that says who writes to a directory, and that is locked meanwhile.
// It stays when its writer has gone; then it is not locked.
const holdName = "snapshot.lock"

// Hold is the right to write to a directory, of one relay at a time.
type Hold struct {
	file *os.File
	dir  string
}

// InUse: another process that runs holds a directory.
type InUse struct {
	Dir string
	// Holder is the other's description of itself; it may be empty.
	Holder string
}

func (e *InUse) Error() string {
	who := "another relay that runs"
	if e.Holder != "" {
		who += " (" + e.Holder + ")"
	}
	return fmt.Sprintf("%s writes to %s; give each relay a cache.snapshot.dir of its own, or end the other one", who, e.Dir)
}

// TakeHold holds a directory, which is made if it is not there, until Close or the end
// of the process. holder describes this process, in a line, to the next one that tries.
// The error is an *InUse if another process holds it.
func TakeHold(dir, holder string) (*Hold, error) {
	if err := Prepare(dir); err != nil {
		return nil, err
	}
	name := filepath.Join(dir, holdName)
	// For reading: a disk on which a file stays open for writing cannot be made read-only.
	f, err := os.OpenFile(name, os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lock(f); err != nil {
		defer f.Close()
		if !errors.Is(err, errShared) {
			return nil, err
		}
		text, _ := io.ReadAll(io.LimitReader(f, maxHolder)) // it only says who
		return nil, &InUse{dir, printable(string(text))}
	}
	// That it cannot be written, on a disk that is full, changes nothing about the lock.
	_ = os.WriteFile(name, []byte(holder+"\n"), 0o600)
	return &Hold{f, dir}, nil
}

// maxHolder bounds what is read of a holder's own words.
const maxHolder = 512

// printable is text fit for one line of a log.
func printable(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, text))
}

// Check says why the directory is not the one that is held any more: it, or the file that is locked, was
// removed or replaced. What is written there then is nobody's, or another relay's.
func (h *Hold) Check() error {
	held, err := h.file.Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(filepath.Join(h.dir, holdName))
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err != nil || !os.SameFile(held, there):
		return fmt.Errorf("%s, or its file %s, was removed or replaced while the relay runs; nothing was written into it. If there is a directory the next time, it is used", h.dir, holdName)
	}
	return nil
}

// Close lets the directory go.
func (h *Hold) Close() { h.file.Close() }
