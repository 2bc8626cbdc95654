package e2e

import (
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/xds-relay/xds-relay/internal/test/peer"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		peer.Cleanup()
		os.Exit(code)
	}))
}

// long asks for the long forms of tests.
func long() bool { return os.Getenv("E2E_LONG") != "" }

// patience is how long a test waits for something that has no limit of its own.
// It is generous: it is spent only by a test that fails.
const patience = 20 * time.Second

// quiet is for how long a test listens whether anything more comes.
const quiet = 200 * time.Millisecond

// As the tests of this package call them.
var (
	eventually   = peer.Eventually
	throughout   = peer.Throughout
	wait         = peer.Wait
	first        = peer.First
	quickBackoff = peer.QuickBackoff
)

func is[T comparable](what string, got, want T) error { return peer.Is(what, got, want) }
