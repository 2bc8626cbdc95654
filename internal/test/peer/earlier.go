package peer

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"testing"
)

// earlierCommit is the version before this one. Once there are releases it is the tag of the last
// minor version before the one in work.
const earlierCommit = "7f6b5df3"

// Earlier is the relay's binary of the version before. It is built from the history of the checkout, and the
// test is skipped where that is not there.
func Earlier(t testing.TB) string {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	sources := exec.Command("git", "archive", "--format=tar", earlierCommit)
	sources.Dir = root
	archive, err := sources.Output()
	if err != nil {
		t.Skipf("the version before, %s, is not in this checkout (%v); git fetch --unshallow --tags gets it", earlierCommit, err)
	}
	dir := t.TempDir()
	unpack := exec.Command("tar", "-x", "-C", dir)
	unpack.Stdin = bytes.NewReader(archive)
	if text, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("unpack the version before: %v\n%s", err, text)
	}
	path := filepath.Join(dir, "xds-relay-"+earlierCommit)
	if err := buildAt(dir, path); err != nil {
		t.Fatal(err)
	}
	return path
}
