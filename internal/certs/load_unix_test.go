//go:build unix

package certs

import (
	"crypto/x509"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/xds-relay/xds-relay/internal/certs/certstest"
)

// A path that leads to no file says so, and does not hang.
func TestLoadTakesOnlyFiles(t *testing.T) {
	w := newWorld(t)
	certstest.InPlace(t, w.dir, w.files(x509.Certificate{}))
	pipe := filepath.Join(w.dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skipf("no pipe can be made here: %v", err)
	}
	for _, path := range []string{pipe, w.dir} {
		f := w.paths()
		f.CA = path
		if _, err := Load(f); err == nil || !strings.Contains(err.Error(), "is not a file") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
