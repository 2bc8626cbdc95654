package peer

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// BinaryEnv names the relay that takes part instead of the one of this checkout.
const BinaryEnv = "E2E_RELAY"

// Binary is the relay's, of this checkout, with the race detector if the test has it. It is
// built once, and only for a test that needs it.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var (
	built   = sync.OnceValues(build)
	builtIn string
)

func build() (string, error) {
	if given := os.Getenv(BinaryEnv); given != "" {
		return given, nil
	}
	dir, err := os.MkdirTemp("", "xds-relay")
	if err != nil {
		return "", err
	}
	builtIn = dir
	path := filepath.Join(dir, "xds-relay")
	return path, Build(path)
}

// Build builds the relay of this checkout.
func Build(path string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	return buildAt(root, path)
}

func buildAt(root, path string) error {
	args := []string{"build", "-C", root, "-o", path}
	if Race {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "./cmd/xds-relay")...)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the relay: %w\n%s", err, text)
	}
	return nil
}

// Cleanup removes what Binary has built. TestMain calls it at the end.
func Cleanup() {
	if builtIn != "" {
		os.RemoveAll(builtIn)
	}
}

// Root is the directory of the relay's module, above the one in which the tests run.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(text), "module github.com/xds-relay/xds-relay\n") {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("peer: the tests do not run in a checkout of xds-relay")
		}
		dir = up
	}
}
