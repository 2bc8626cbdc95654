//go:build linux

package chaos

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/xds-relay/xds-relay/internal/test/peer"
)

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
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		peer.Cleanup()
		os.Exit(code)
	}))
}

// long asks for the long forms.
func long() bool { return os.Getenv("CHAOS") == "long" }
