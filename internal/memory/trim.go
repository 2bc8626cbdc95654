package memory

import (
	"runtime/debug"
	"sync"
	"time"
)

// Trim gives memory back after a crowd of clients has come. What their arrival took is garbage then, and the heap has
// grown to twice what was alive in the middle of it; without many allocations the next collection would be minutes away.
// It costs one collection. Its methods may be called from any goroutine.
type Trim struct {
	free func()

	mu    sync.Mutex
	since time.Time // when the present second began
	came  int       // in it
	timer *time.Timer
	ended bool
}

const (
	// crowd is how many clients in a second are one.
	crowd = 100
	// calm is how long no such second may have been until memory is given back.
	calm = 2 * time.Second
)

// NewTrim returns the Trim of this process.
func NewTrim() *Trim { return &Trim{free: debug.FreeOSMemory} }

// Came notes that a client has come.
func (t *Trim) Came() {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.since) >= time.Second {
		t.since, t.came = now, 0
	}
	if t.came++; t.came != crowd || t.ended {
		return
	}
	if t.timer != nil {
		t.timer.Stop()
	}
	t.timer = time.AfterFunc(calm, t.free)
}

// Close has nothing given back any more.
func (t *Trim) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended = true; t.timer != nil {
		t.timer.Stop()
	}
}
