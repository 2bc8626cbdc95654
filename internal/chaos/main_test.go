//go:build linux

package chaos

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// binary is the relay's, built once.
var binary string

func TestMain(m *testing.M) {
	if os.Getenv(asControlPlane) != "" {
		if err := runControlPlane(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if long() { // what runs beside each other there waits, mostly
		flag.Parse()
		if err := flag.Set("test.parallel", "64"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	dir, err := os.MkdirTemp("", "xds-relay-chaos")
	if err == nil {
		binary, err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// build makes the relay's binary; with the race detector, if this one has it.
func build(dir string) (string, error) {
	path := filepath.Join(dir, "xds-relay")
	args := []string{"build", "-o", path}
	if raceEnabled {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "../../cmd/xds-relay")...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the relay: %w\n%s", err, text)
	}
	return path, nil
}

// long asks for the long forms.
func long() bool { return os.Getenv("CHAOS") == "long" }
