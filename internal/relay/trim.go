package relay

import (
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// trim gives memory back after a crowd of clients has come. What their arrival took is garbage then, and the heap has
// grown to twice what was alive in the middle of it; without many allocations the next collection would be minutes away.
// It costs one collection, and is done only if there is enough to gain. Its methods may be called from any goroutine.
type trim struct {
	free func()

	mu    sync.Mutex
	since time.Time // when the present second began
	count int       // in it
	timer *time.Timer
	ended bool
}

const (
	// crowd is how many clients in a second are one.
	crowd = 100
	// calm is how long no such second may have been until memory is given back.
	calm = 2 * time.Second
)

// worthwhile is how much must have been allocated since the last collection for another one to be worth its time.
const worthwhile = 32 << 20

// newTrim returns the one of this process.
func newTrim() *trim {
	return &trim{free: func() {
		if allocated() >= worthwhile {
			debug.FreeOSMemory()
		}
	}}
}

// allocated is what has been allocated since the last collection, in bytes; some of it may be garbage.
func allocated() int64 {
	m := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(m)
	return int64(m[0].Value.Uint64()) - int64(m[1].Value.Uint64()) //nolint:gosec // a heap is not that large
}

// came notes that a client has come.
func (t *trim) came() {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.since) >= time.Second {
		t.since, t.count = now, 0
	}
	if t.count++; t.count != crowd || t.ended {
		return
	}
	if t.timer != nil {
		t.timer.Stop()
	}
	t.timer = time.AfterFunc(calm, t.free)
}

// close has nothing given back any more.
func (t *trim) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended = true; t.timer != nil {
		t.timer.Stop()
	}
}
