package snapshot

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/xds-relay/xds-relay/cache"
)

// The files in a snapshot's directory. The last one is the next one of the others, while
// it is being written.
const (
	fileName     = "snapshot"
	unwantedName = "snapshot.unwanted"
	tempName     = "snapshot.new"
)

// Write replaces the snapshot in a directory, which is made if it is not there. A
// crash at any moment leaves the old one or the new one (G9).
func Write(dir string, s *Snapshot, key *Key) (size int64, err error) {
	return replace(dir, fileName, func(out io.Writer) error { return s.Encode(out, key) })
}

// replace replaces a file in a directory as a whole.
func replace(dir, name string, write func(io.Writer) error) (size int64, err error) {
	if err := Prepare(dir); err != nil {
		return 0, err
	}
	d, err := os.Open(dir)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	if err := lock(d); err != nil {
		return 0, fmt.Errorf("%s: %w", dir, err)
	}
	temp := filepath.Join(dir, tempName)
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err // what a crash left behind, with whatever mode
	}
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(temp) // on a full disk it would be in the way
		}
	}()
	if err = write(f); err != nil {
		return 0, err
	}
	if err = f.Sync(); err != nil {
		return 0, err
	}
	size, _ = f.Seek(0, io.SeekCurrent)
	if err = f.Close(); err != nil {
		return 0, err
	}
	if err = os.Rename(temp, filepath.Join(dir, name)); err != nil {
		return 0, err
	}
	return size, d.Sync() // it makes the rename last
}

var errShared = errors.New("another relay writes here just now; give each one a cache.snapshot.dir of its own")

// Read loads the snapshot of a directory. The error is fs.ErrNotExist if there is
// none; any other says why it cannot be used. A directory that Write will refuse is
// refused here, so that it is known from the start.
func Read(dir string, key *Key, f cache.Fingerprint) (*Snapshot, error) {
	in, err := open(dir, fileName)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	s, err := decode(in, key, f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", in.Name(), err)
	}
	return s, nil
}

// open opens a file of a directory, if both can be trusted.
func open(dir, name string) (*os.File, error) {
	if err := Prepare(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, name)
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if err := trusted(info); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return os.Open(path)
}

// Prepare makes sure that a directory exists and that nobody else can write to
// it, since its content is served to clients.
func Prepare(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	if err := trusted(info); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}

// Check says why [Prepare] would refuse a directory, or writing to it fail, and leaves
// everything as it is: a directory that is not there is not made.
func Check(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		parent := filepath.Dir(filepath.Clean(dir))
		for errors.Is(err, fs.ErrNotExist) && parent != filepath.Dir(parent) {
			if info, err = os.Stat(parent); errors.Is(err, fs.ErrNotExist) {
				parent = filepath.Dir(parent)
			}
		}
		if err == nil && !info.IsDir() {
			return fmt.Errorf("it cannot be made: %s is not a directory", parent)
		}
		if err == nil {
			err = mayWrite(parent)
		}
		if err != nil {
			return fmt.Errorf("it is not there, and cannot be made: %w", err)
		}
		return nil
	case err != nil:
		return err
	case !info.IsDir():
		return errors.New("it is not a directory")
	}
	if err := trusted(info); err != nil {
		return err
	}
	return mayWrite(dir)
}

// trusted refuses what others than its owner can write, and what belongs to
// somebody else.
func trusted(info fs.FileInfo) error {
	if !info.IsDir() && !info.Mode().IsRegular() {
		return fmt.Errorf("it is no plain file (mode %v)", info.Mode())
	}
	if info.Mode().Perm()&0o022 != 0 {
		hint := "chmod go-w"
		if info.IsDir() {
			hint = "name a directory that only the relay uses, with mode 0700"
		}
		return fmt.Errorf("others can write to it (mode %04o); %s", info.Mode().Perm(), hint)
	}
	if !ours(info) {
		return fmt.Errorf("it belongs to another user")
	}
	return nil
}
