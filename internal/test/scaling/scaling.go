// Package scaling measures what a call costs under a lock that others wait for, and what becomes of that when the input
// doubles; for benchmarks only. It counts the CPU time of the calling thread, so that a busy machine changes little. It
// asserts nothing, and is no use for a call that leaves its work to other goroutines, nor for two benchmarks at a time.
package scaling

import (
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Run reports what a call costs at n, in milliseconds of CPU time: all of it ("call-ms"), and under Locks
// ("lock-ms"), and by how much more the latter, or all of it if there was no lock, is at 2n ("at-2n"). setup prepares one
// call. Both sizes take turns, and what counts is the median.
func Run(b *testing.B, n int, setup func(n int) (call func())) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var once, twice costs
	for b.Loop() {
		once.add(setup(n))
		twice.add(setup(2 * n))
	}
	b.ReportMetric(0, "ns/op") // of the preparations, too
	b.ReportMetric(milliseconds(median(once.call)), "call-ms")
	b.ReportMetric(milliseconds(median(once.lock)), "lock-ms")
	if median(twice.lock) == 0 { // all of it is under the caller's
		once.lock, twice.lock = once.call, twice.call
	}
	b.ReportMetric(float64(median(twice.lock))/float64(median(once.lock)), "at-2n")
}

// Lock counts the time for which it is held, by a call that Run measures.
type Lock struct{ mu sync.Mutex }

// Lock takes it.
func (l *Lock) Lock() {
	l.mu.Lock()
	held.since = now()
}

// Unlock gives it back.
func (l *Lock) Unlock() {
	held.total += now() - held.since
	l.mu.Unlock()
}

var held struct{ since, total time.Duration }

// costs are those of the calls with one size.
type costs struct{ call, lock []time.Duration }

func (c *costs) add(call func()) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // what was prepared is not collected meanwhile
	held.total = 0
	begin := now()
	call()
	c.call, c.lock = append(c.call, now()-begin), append(c.lock, held.total)
}

func now() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
