//go:build !linux

package envoygateway

import (
	"os/exec"
)

// startAlone starts a command; it shares everybody's network.
func startAlone(cmd *exec.Cmd) error { return cmd.Start() }

func loopbackUp() error { return nil }
