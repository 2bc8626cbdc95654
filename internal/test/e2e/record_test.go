package e2e

import (
	"fmt"
	"strings"
	"sync"
)

// record is what a client of either variant has heard, and what was wrong with it.
type record struct {
	name string

	mu     sync.Mutex // of the client's own state, too
	heard  []heard
	faults []string
	ends   []error // of streams that the client had not closed itself
}

// fault is called under the lock.
func (r *record) fault(format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

// Counts are how many streams ended, how many responses were at fault, and how many
// responses there were.
func (r *record) Counts() (ends, faults, heard int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ends), len(r.faults), len(r.heard)
}

// Sound complains of whatever was wrong with what the client has got, and of
// streams that ended though the client had not ended them.
func (r *record) Sound() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.faults) > 0 {
		return fmt.Errorf("%s: %d faults: %s\nheard, last of %d: %.2000v", r.name, len(r.faults),
			strings.Join(r.faults[:min(len(r.faults), 5)], "; "), len(r.heard), r.heard[max(0, len(r.heard)-20):])
	}
	if len(r.ends) > 0 {
		return fmt.Errorf("%s: stream ended: %v", r.name, r.ends[0])
	}
	return nil
}

// End is how the last stream ended that the client had not ended itself.
func (r *record) End() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ends) == 0 {
		return nil
	}
	return r.ends[len(r.ends)-1]
}
