package peer

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// earlierCommit is the version before this one. Once there are releases it is the tag of the last
// minor version before the one in work.
const earlierCommit = "7f6b5df3"

// Earlier is the relay's binary of the version before. It is built from the history of the checkout, and the
// test is skipped where that is not there. The sources stay in the user's cache, where they have the path that Go's build
// cache knows.
func Earlier(t testing.TB) string {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	cached, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	sources := filepath.Join(cached, "xds-relay", "earlier-"+earlierCommit)
	if _, err := os.Stat(sources); err != nil {
		unpackEarlier(t, root, sources)
	}
	path := filepath.Join(t.TempDir(), "xds-relay-"+earlierCommit)
	if err := buildAt(sources, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// unpackEarlier puts all sources there at once, since other tests may do the same.
func unpackEarlier(t testing.TB, root, to string) {
	t.Helper()
	archive := exec.Command("git", "archive", "--format=tar", earlierCommit)
	archive.Dir = root
	sources, err := archive.Output()
	if err != nil {
		t.Skipf("the version before, %s, is not in this checkout (%v); git fetch --unshallow --tags gets it", earlierCommit, err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(filepath.Dir(to), "unpacking")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	unpack := exec.Command("tar", "-x", "-C", dir)
	unpack.Stdin = bytes.NewReader(sources)
	if text, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("unpack the version before: %v\n%s", err, text)
	}
	if err := os.Rename(dir, to); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
}
