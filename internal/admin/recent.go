package admin

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// What the page shows of the last minutes is kept in the process, so that it needs no Prometheus: durations, counted
// in buckets of a minute and of a size. The memory for it is taken at the start.

const (
	// recently is how many minutes are looked at, this one included.
	recently = 15
	// Durations from fastest on are told apart by a factor of 2^(1/4), or 19 %; what is longer than 5 minutes is in the
	// last bucket.
	fastest    = 10 * time.Microsecond
	perDouble  = 4
	sizes      = 100
	halfBucket = 0.5
)

// recent counts the durations of the last minutes. It may be used from any goroutine, and costs a clock and an
// addition: it is asked for each delivery.
type recent struct {
	minutes [recently + 1]minute // by number; the one that is too old is taken for the next
	turn    sync.Mutex           // held to begin a minute
}

type minute struct {
	number  atomic.Int64 // since 1970
	slowest atomic.Int64
	counts  [sizes]atomic.Uint32
}

// observe counts a duration, as of a time.
func (r *recent) observe(after time.Duration, now time.Time) {
	number := now.Unix() / 60
	m := &r.minutes[number%int64(len(r.minutes))]
	if m.number.Load() != number {
		r.begin(m, number)
	}
	m.counts[sizeOf(after)].Add(1)
	for slowest := m.slowest.Load(); int64(after) > slowest; slowest = m.slowest.Load() {
		if m.slowest.CompareAndSwap(slowest, int64(after)) {
			return
		}
	}
}

// begin empties a minute that is over. What others count meanwhile may be lost, which is a few of many.
func (r *recent) begin(m *minute, number int64) {
	r.turn.Lock()
	defer r.turn.Unlock()
	if m.number.Load() >= number {
		return
	}
	for i := range m.counts {
		m.counts[i].Store(0)
	}
	m.slowest.Store(0)
	m.number.Store(number)
}

func sizeOf(d time.Duration) int {
	if d <= fastest {
		return 0
	}
	return min(int(perDouble*math.Log2(float64(d)/float64(fastest))), sizes-1)
}

// spread is how durations are spread.
type spread struct {
	Count   int
	Slowest time.Duration

	counts [sizes]int
}

// since adds up the minutes that are not over for long.
func (r *recent) since(now time.Time) (s spread) {
	number := now.Unix() / 60
	for i := range r.minutes {
		m := &r.minutes[i]
		if age := number - m.number.Load(); age < 0 || age >= recently {
			continue
		}
		s.Slowest = max(s.Slowest, time.Duration(m.slowest.Load()))
		for i := range m.counts {
			n := int(m.counts[i].Load())
			s.counts[i] += n
			s.Count += n
		}
	}
	return s
}

// quantile is the duration that a part of them, such as 0.99, do not exceed; 0: there are none.
func (s *spread) quantile(part float64) time.Duration {
	rank := int(math.Ceil(part * float64(s.Count)))
	for i, n := range s.counts {
		if rank -= n; rank <= 0 && n > 0 {
			d := time.Duration(float64(fastest) * math.Exp2((float64(i)+halfBucket)/perDouble))
			return min(d, s.Slowest)
		}
	}
	return 0
}
