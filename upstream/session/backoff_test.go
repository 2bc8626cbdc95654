package session

import (
	"testing"
	"time"
)

var testBackoff = &Backoff{Initial: time.Second, Max: 30 * time.Second, Factor: 1.6, Jitter: 0.2}

// TestBackoffGrowsToItsCap, and every delay keeps within its jitter (ERR-1).
func TestBackoffGrowsToItsCap(t *testing.T) {
	want := []float64{1, 1.6, 2.56, 4.096, 6.5536, 10.48576, 16.777216, 26.8435456, 30, 30, 30}
	for _, random := range []float64{0, 0.5, 0.999} {
		var a attempts
		for i, seconds := range want {
			center := time.Duration(seconds * float64(time.Second))
			got := a.failed(testBackoff, random)
			if exact := time.Duration(float64(center) * (1 + 0.2*(2*random-1))); (got - exact).Abs() > time.Microsecond {
				t.Errorf("random %v, failure %d: %v, want %v", random, i+1, got, exact)
			}
		}
	}
}

// TestReconnectAfterAResponse is soon, at random, and not more than once a second;
// a response resets the back-off (ERR-2).
func TestReconnectAfterAResponse(t *testing.T) {
	now := time.Unix(100, 0)
	var a attempts
	a.failed(testBackoff, 0.5)
	a.failed(testBackoff, 0.5)
	if got := a.ended(testBackoff, now, now.Add(-time.Minute), 0.25); got != 250*time.Millisecond {
		t.Errorf("got %v, want a quarter of a second", got)
	}
	if got := a.failed(testBackoff, 0.5); got != time.Second {
		t.Errorf("after a response the next failure waits %v, want the first delay", got)
	}
	if got := a.ended(testBackoff, now.Add(time.Minute), now.Add(time.Minute-300*time.Millisecond), 0); got != 700*time.Millisecond {
		t.Errorf("got %v, want the rest of the second since the last attempt", got)
	}
}

// TestAnswerOnceAndDie: a server that answers and ends at once, again and again,
// is failing (ERR-2).
func TestAnswerOnceAndDie(t *testing.T) {
	now := time.Unix(100, 0)
	var a attempts
	var waits []time.Duration
	for range 6 {
		wait := a.ended(testBackoff, now, now, 0.5)
		waits = append(waits, wait)
		now = now.Add(wait)
	}
	if waits[2] < time.Second || waits[5] <= waits[2] {
		t.Errorf("waits do not grow: %v", waits)
	}
	now = now.Add(time.Minute)
	if wait := a.ended(testBackoff, now, now.Add(-time.Minute), 0.5); wait != 500*time.Millisecond {
		t.Errorf("after a quiet minute: %v, want half a second", wait)
	}
}
