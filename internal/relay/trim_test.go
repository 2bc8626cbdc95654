package relay

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestTrim: memory is given back once, when a crowd has come and no other one follows; few clients are none.
func TestTrim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var freed atomic.Int64
		given := &trim{free: func() { freed.Add(1) }}
		come := func(clients int, within time.Duration) {
			for range clients {
				given.came()
				time.Sleep(within / time.Duration(clients))
			}
		}
		if come(500, 10*time.Second); freed.Load() != 0 {
			t.Errorf("given back %d times for 50 clients a second", freed.Load())
		}
		come(2000, 4*time.Second)
		if freed.Load() != 0 {
			t.Errorf("given back %d times while clients come", freed.Load())
		}
		if time.Sleep(10 * time.Second); freed.Load() != 1 {
			t.Errorf("given back %d times after a crowd, want once", freed.Load())
		}
		come(1000, time.Second)
		given.close()
		if time.Sleep(10 * time.Second); freed.Load() != 1 {
			t.Error("given back after the end")
		}
	})
}

// TestAllocated: what is allocated counts until it is collected.
func TestAllocated(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	runtime.GC()
	before := allocated()
	kept := make([]byte, worthwhile)
	if n := allocated(); n-before < worthwhile {
		t.Errorf("%d bytes more count as allocated, want %d", n-before, worthwhile)
	}
	runtime.KeepAlive(kept)
	if runtime.GC(); allocated() >= worthwhile {
		t.Errorf("%d bytes count as allocated after a collection", allocated())
	}
}
