package e2e

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// long asks for the long forms of tests.
func long() bool { return os.Getenv("E2E_LONG") != "" }

// patience is how long a test waits for something that has no limit of its own.
// It is generous: it is spent only by a test that fails.
const patience = 20 * time.Second

// quiet is for how long a test listens whether anything more comes.
const quiet = 200 * time.Millisecond

// pollEvery is how often eventually looks. Looking at hundreds of clients takes
// time of its own; restFor times as long as a look took, it does not look again.
const (
	pollEvery = 5 * time.Millisecond
	restFor   = 5
)

// eventually waits until missing returns nil and tells how long that took. What
// missing still missed at the deadline is the test's failure.
func eventually(t testing.TB, limit time.Duration, missing func() error) time.Duration {
	t.Helper()
	begin := time.Now()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	next := time.NewTimer(pollEvery)
	defer next.Stop()
	for {
		look := time.Now()
		err := missing()
		if err == nil {
			return time.Since(begin)
		}
		next.Reset(max(pollEvery, restFor*time.Since(look)))
		select {
		case <-next.C:
		case <-deadline.C:
			if err = missing(); err != nil {
				t.Fatalf("after %v: %v", limit, err)
			}
			return time.Since(begin)
		}
	}
}

// throughout fails the test if wrong returns an error at any time during span.
func throughout(t testing.TB, span time.Duration, wrong func() error) {
	t.Helper()
	end := time.NewTimer(span)
	defer end.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if err := wrong(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-tick.C:
		case <-end.C:
			return
		}
	}
}

// wait waits for a time that the scenario itself needs, such as the length of an
// outage.
func wait(span time.Duration) { <-time.After(span) }

// is complains if two things differ.
func is[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s: got %v, want %v", what, got, want)
	}
	return nil
}

// first returns the first complaint there is.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
