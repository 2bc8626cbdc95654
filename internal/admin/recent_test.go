package admin

import (
	"sync"
	"testing"
	"time"
	"unsafe"
)

// TestRecent: quantiles are those of the last 15 minutes to 20 %, the slowest is exact, and nothing older counts.
func TestRecent(t *testing.T) {
	var r recent
	now := time.Unix(1_000_000, 0)
	r.observe(time.Hour, now.Add(-recently*time.Minute)) // too old
	for i := range 1000 {
		r.observe(time.Duration(i+1)*time.Millisecond, now.Add(-time.Duration(i%recently)*time.Minute))
	}
	check := func(s spread, count int, p50, p99, slowest time.Duration) {
		t.Helper()
		near := func(got, want time.Duration) bool { return got >= want*5/6 && got <= want*6/5 }
		if s.Count != count || !near(s.quantile(0.5), p50) || !near(s.quantile(0.99), p99) || s.Slowest != slowest {
			t.Errorf("%d, p50 %v, p99 %v, slowest %v; want %d, %v, %v, %v", s.Count, s.quantile(0.5), s.quantile(0.99), s.Slowest, count, p50, p99, slowest)
		}
	}
	check(r.since(now), 1000, 500*time.Millisecond, 990*time.Millisecond, time.Second)
	check(r.since(now.Add(14*time.Minute)), 67, 500*time.Millisecond, 990*time.Millisecond, 991*time.Millisecond)
	check(r.since(now.Add(15*time.Minute)), 0, 0, 0, 0)
	later := now.Add(time.Hour)
	r.observe(0, later)
	r.observe(24*time.Hour, later)
	if s := r.since(later); s.Count != 2 || s.Slowest != 24*time.Hour {
		t.Errorf("%d, slowest %v", s.Count, s.Slowest)
	}
}

// TestRecentConcurrently: it loses nothing within a minute, and its memory is fixed.
func TestRecentConcurrently(t *testing.T) {
	var r recent
	now := time.Unix(60, 0)
	r.observe(time.Second, now)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 1000 {
				r.observe(time.Second, now)
			}
		})
	}
	all.Wait()
	if s := r.since(now); s.Count != 4001 {
		t.Errorf("%d of 4001 were counted", s.Count)
	}
	if size := unsafe.Sizeof(r); size > 8<<10 {
		t.Errorf("it takes %d bytes", size)
	}
}

func BenchmarkRecent(b *testing.B) {
	var r recent
	for b.Loop() {
		r.observe(3*time.Millisecond, time.Now())
	}
}
