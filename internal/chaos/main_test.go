//go:build linux

// Package chaos breaks real processes: the relay's own binary, a control plane that
// is a process of its own, and the network between them, with a thousand clients in
// the test's process that judge everything they hear. It owns the targets of the
// reliability table that need real processes, and the figures in
// bench/results/chaos-*.json.
//
// A plain go test runs each target in a short form that asserts what must hold on
// any machine: no final state lost, nothing removed that exists, nobody sent away.
// Times and sizes are measured there and not judged. CHAOS=long (make chaos) runs
// the form that the target's text describes, and judges its limits, too.
//
// It never sleeps to get something right, and never leaves a process behind:
// whatever it starts dies with it. Limitations: it runs on Linux only; everything
// shares one machine, so that the clients and the control plane take their share of
// what is measured; and clients read no more of a response than names and versions.
package chaos

import (
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
