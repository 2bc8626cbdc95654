//go:build linux

package load

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/xds-relay/xds-relay/bench/internal/result"
)

func record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(micros(d)) // within the bounds, so it cannot fail
}

func micros(d time.Duration) int64 {
	return min(max(d.Microseconds(), result.Shortest), result.Longest)
}

// recorder measures the time from the moment for which a change was scheduled:
// when a schedule falls behind, changes are late, not fewer. Changes are numbered
// by the step that made them. It is safe for concurrent use.
type recorder struct {
	shards [16]shard
	cold   shard // clients until they have everything

	mu       sync.Mutex
	last     *hdrhistogram.Histogram // the last client of each change
	schedule *schedule
}

type shard struct {
	mu   sync.Mutex
	hist *hdrhistogram.Histogram
}

// schedule is the changes that are measured.
type schedule struct {
	first    int // the step at begin
	begin    time.Time
	interval time.Duration
	// audience is how many clients each change has not yet reached.
	audience []atomic.Int32

	deliveries atomic.Int64
	early      atomic.Int64 // deliveries of steps before first
	repeated   atomic.Int64 // deliveries beyond the audience
	settled    atomic.Int64 // changes that have reached everybody
	done       chan struct{}
}

func newRecorder() *recorder {
	r := &recorder{last: result.NewHistogram(), cold: shard{hist: result.NewHistogram()}}
	for i := range r.shards {
		r.shards[i].hist = result.NewHistogram()
	}
	return r
}

// begin begins to measure n changes from step first on, the first at begin and the
// others at an interval. audience says how many clients each is to reach.
func (r *recorder) begin(first, n int, begin time.Time, interval time.Duration, audience func(step int) int) *schedule {
	s := &schedule{first: first, begin: begin, interval: interval, audience: make([]atomic.Int32, n), done: make(chan struct{})}
	for i := range s.audience {
		a := audience(first + i)
		s.audience[i].Store(int32(a))
		if a == 0 {
			s.settled.Add(1)
		}
	}
	if s.settled.Load() == int64(n) {
		close(s.done)
	}
	r.mu.Lock()
	r.schedule = s
	r.mu.Unlock()
	return s
}

// due is when a step was meant to be taken.
func (s *schedule) due(step int) time.Time {
	return s.begin.Add(time.Duration(step-s.first) * s.interval)
}

// delivered takes in that a step has reached one more client.
func (r *recorder) delivered(step int, at time.Time) {
	r.mu.Lock()
	s := r.schedule
	r.mu.Unlock()
	if s == nil {
		return
	}
	i := step - s.first
	if i < 0 || i >= len(s.audience) {
		s.early.Add(1)
		return
	}
	left := s.audience[i].Add(-1)
	if left < 0 {
		s.repeated.Add(1)
		return
	}
	d := at.Sub(s.due(step))
	s.deliveries.Add(1)
	h := &r.shards[uint(left)%uint(len(r.shards))]
	h.mu.Lock()
	record(h.hist, d)
	h.mu.Unlock()
	if left > 0 {
		return
	}
	r.mu.Lock()
	record(r.last, d)
	r.mu.Unlock()
	if s.settled.Add(1) == int64(len(s.audience)) {
		close(s.done)
	}
}

// missing counts changes that have not arrived by a time as if they had taken until
// then. Otherwise a server that loses its late changes would look quick.
func (r *recorder) missing(s *schedule, now time.Time) (deliveries int64) {
	for i := range s.audience {
		left := s.audience[i].Load()
		if left <= 0 {
			continue
		}
		d := now.Sub(s.due(s.first + i))
		h := &r.shards[0]
		h.mu.Lock()
		_ = h.hist.RecordValues(micros(d), int64(left)) // see record
		h.mu.Unlock()
		r.mu.Lock()
		record(r.last, d)
		r.mu.Unlock()
		deliveries += int64(left)
	}
	return deliveries
}

// synced takes in how long a client took until it had everything.
func (r *recorder) synced(d time.Duration) {
	r.cold.mu.Lock()
	defer r.cold.mu.Unlock()
	record(r.cold.hist, d)
}

// propagation is how long changes took, to each client.
func (r *recorder) propagation() *hdrhistogram.Histogram {
	all := result.NewHistogram()
	for i := range r.shards {
		r.shards[i].mu.Lock()
		all.Merge(r.shards[i].hist)
		r.shards[i].mu.Unlock()
	}
	return all
}

// lastClient is how long changes took until everybody had them.
func (r *recorder) lastClient() *hdrhistogram.Histogram {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := result.NewHistogram()
	all.Merge(r.last)
	return all
}

// reset forgets what was measured.
func (r *recorder) reset() {
	for i := range r.shards {
		r.shards[i].mu.Lock()
		r.shards[i].hist.Reset()
		r.shards[i].mu.Unlock()
	}
	r.mu.Lock()
	r.last.Reset()
	r.mu.Unlock()
}

// coldClients is how long clients took until they had everything.
func (r *recorder) coldClients() *hdrhistogram.Histogram {
	r.cold.mu.Lock()
	defer r.cold.mu.Unlock()
	all := result.NewHistogram()
	all.Merge(r.cold.hist)
	return all
}
