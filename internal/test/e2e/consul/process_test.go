package consul

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/internal/test/peer"
)

func portOf(t testing.TB, addr string) int {
	t.Helper()
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// patience is how long anything may take that has no limit of its own. It is longer than the guard of
// the example's relay.yaml may hold back a removal (30 s), and Envoy then drains a listener (60 s).
const patience = 2 * time.Minute

// eventually waits until missing returns nil, and tells how long that took.
func eventually(t testing.TB, missing func() error) time.Duration {
	t.Helper()
	return peer.Eventually(t, patience, missing)
}

// run runs a program to its end, and returns what it wrote to standard output.
func run(ctx context.Context, cmd *exec.Cmd) ([]byte, error) {
	out, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		err = fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	return out, errors.Join(err, ctx.Err())
}
