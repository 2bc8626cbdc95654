package envoy

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/xds-relay/xds-relay/internal/test/peer"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// What runs beside each other here waits, mostly.
	if err := flag.Set("test.parallel", strconv.Itoa(often(4, 8))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		peer.Cleanup()
		os.Exit(code)
	}))
}

// long asks for the long forms of tests.
func long() bool { return os.Getenv("E2E_LONG") != "" }

// often is how many times something is done.
func often(long_, short int) int {
	if long() {
		return long_
	}
	return short
}

// rate is how many requests a second go through an Envoy.
func rate() int { return often(300, 50) }

// patience is how long a test waits for something that has no limit of its own. It is
// generous: only a test that fails spends it.
const patience = 45 * time.Second

// never is how long the Envoys of most tests wait for a resource before they go on without:
// longer than any test, so that nobody passes by waiting for that.
const never = time.Hour

// envoysOwn is how long an Envoy waits by default (init_fetch_timeout).
const envoysOwn = 15 * time.Second

// slack is what a busy machine may add to a time that a peer's clock measures.
const slack = 10 * time.Second
