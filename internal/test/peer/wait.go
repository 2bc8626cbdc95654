package peer

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// pollEvery is how often Eventually and Throughout look. Looking at hundreds of clients
// takes time of its own; for rest times as long as a look took, there is no other.
const (
	pollEvery = 5 * time.Millisecond
	rest      = 2
)

// Eventually waits until missing returns nil, and tells how long that took. What it still
// missed at the limit is the test's failure.
func Eventually(t testing.TB, limit time.Duration, missing func() error) time.Duration {
	t.Helper()
	begin := time.Now()
	for {
		look := time.Now()
		err := missing()
		if err == nil {
			return time.Since(begin)
		}
		left := limit - time.Since(begin)
		if left <= 0 {
			t.Fatalf("after %v: %v", limit, err)
		}
		Wait(min(left, max(pollEvery, rest*time.Since(look))))
	}
}

// Throughout fails the test if wrong returns an error at any time during a span.
func Throughout(t testing.TB, span time.Duration, wrong func() error) {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < span; Wait(pollEvery) {
		if err := wrong(); err != nil {
			t.Fatalf("after %v: %v", time.Since(begin), err)
		}
	}
}

// Wait waits for a time that a situation itself needs, such as the length of an outage.
func Wait(span time.Duration) { <-time.After(span) }

// Pause is Wait that ends with ctx; false if that came first.
func Pause(ctx context.Context, span time.Duration) bool {
	t := time.NewTimer(span)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Is complains if two things differ.
func Is[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s: got %v, want %v", what, got, want)
	}
	return nil
}

// First returns the first complaint there is.
func First(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
