package envoy

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// What runs beside each other here waits, mostly.
	if err := flag.Set("test.parallel", strconv.Itoa(often(4, 8))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if dir := builtIn; dir != "" {
			os.RemoveAll(dir)
		}
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

const pollEvery = 20 * time.Millisecond

// eventually waits until missing returns nil and tells how long that took. What
// missing still missed at the limit is the test's failure.
func eventually(t testing.TB, limit time.Duration, missing func() error) time.Duration {
	t.Helper()
	begin := time.Now()
	for {
		look := time.Now()
		err := missing()
		if err == nil {
			return time.Since(begin)
		}
		if time.Since(begin) > limit {
			t.Fatalf("after %v: %v", limit, err)
		}
		wait(max(pollEvery, 2*time.Since(look)))
	}
}

// throughout fails the test if wrong returns an error at any time during span.
func throughout(t testing.TB, span time.Duration, wrong func() error) {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < span; wait(pollEvery) {
		if err := wrong(); err != nil {
			t.Fatalf("after %v: %v", time.Since(begin), err)
		}
	}
}

// wait waits for a time that the scenario itself needs.
func wait(span time.Duration) { <-time.After(span) }

// is complains if two things differ.
func is[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s: got %v, want %v", what, got, want)
	}
	return nil
}

var (
	built   = sync.OnceValues(build)
	builtIn string
)

// binary is the relay's, which is built once, and only for a test that needs it.
func binary(t testing.TB) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func build() (string, error) {
	dir, err := os.MkdirTemp("", "xds-relay-envoy")
	if err != nil {
		return "", err
	}
	builtIn = dir
	path := filepath.Join(dir, "xds-relay")
	if text, err := exec.Command("go", "build", "-o", path, "../../../cmd/xds-relay").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the relay: %w\n%s", err, text)
	}
	return path, nil
}
