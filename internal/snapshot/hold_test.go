package snapshot

import (
	"errors"
	"path/filepath"
	"testing"
)

// TestHold: a directory has one writer; the next one is told who it is, and has it when
// the first has let go.
func TestHold(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	first, err := TakeHold(dir, "process 7, instance \"a\"")
	if err != nil {
		t.Fatal(err)
	}
	_, err = TakeHold(dir, "process 8, instance \"b\"")
	inUse := (*InUse)(nil)
	want := `another relay that runs (process 7, instance "a") writes to ` + dir + `; give each relay a cache.snapshot.dir of its own, or end the other one`
	if !errors.As(err, &inUse) || err.Error() != want {
		t.Fatalf("got %v, want %s", err, want)
	}
	if _, err := Write(dir, example(1), nil); err != nil {
		t.Errorf("the holder cannot write: %v", err)
	}
	first.Close()
	second, err := TakeHold(dir, "b")
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if _, err = TakeHold(dir, "c"); err == nil || !errors.As(err, &inUse) || inUse.Holder != "b" {
		t.Errorf("the second holder: %v", err)
	}
}
