package certs

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestDirectoryMadeAgain: a directory that is removed and made again while nobody listens is heard of afterwards, although names
// below it were all that was asked for, and is watched then.
func TestDirectoryMadeAgain(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "v")
	file := filepath.Join(dir, "tls.crt")
	mkdir := func() {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	n := newNotifier(slog.New(slog.DiscardHandler))
	if n == nil {
		t.Skip("the system does not report changes")
	}
	defer n.close()
	names := map[string]bool{filepath.Join(top, "current"): true, file: true}
	heard := func() bool {
		for quiet := time.After(time.Second); ; {
			select {
			case e := <-n.events():
				if n.concerns(e) {
					n.watch(names)
					if e.Name == file {
						return true
					}
				}
			case <-quiet:
				return false
			}
		}
	}
	mkdir()
	n.watch(names)
	if err := os.WriteFile(filepath.Join(top, "other"), nil, 0o600); err != nil { // which waits to be heard before the rest
		t.Fatal(err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	mkdir()
	n.watch(names) // it still thinks that it watches the directory
	if heard() {
		t.Fatal("a file is heard of that there is not")
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if !heard() {
		t.Error("nothing is heard of a file in the directory that was made again")
	}
}
