// Package health says whether the relay is alive: a watchdog that asks every part that
// clients depend on for a sign of life, and the form in which probes are told.
//
// It owns the counting of rounds and the goroutine that asks. Its owner hands in the
// parts; the watchdog knows nothing else of them. It never ends anything, and never
// asks anything outside of the process. Limitation: it finds parts that stand still,
// not slow ones, and not a single client's stream that is stuck while the others go
// on.
package health

// Check is one condition, as a probe shows it.
type Check struct {
	// Name is a word, the same whatever the outcome.
	Name string
	// OK: the condition holds.
	OK bool
	// Why it does not hold; empty if it does.
	Why string
}

// Verdict is true if all checks hold; why is the first one's that does not.
func Verdict(checks []Check) (ok bool, why string) {
	for _, c := range checks {
		if !c.OK {
			return false, c.Why
		}
	}
	return true, ""
}
