package memory

import (
	"log/slog"
	"math"
	"runtime/metrics"
	"slices"
	"sync/atomic"
	"time"
)

// Watch knows whether live memory is short. Its methods may be called from any goroutine.
type Watch struct {
	log  *slog.Logger
	read func() (live, limit int64)

	looked  atomic.Int64 // when, in ns since 1970
	pressed atomic.Bool
	said    atomic.Int64 // the last warning
}

const (
	// often is the time between two looks, and warnEvery that between two warnings.
	often     = time.Second
	warnEvery = time.Minute
	// Live memory is short from so many parts of its limit on.
	part, of = 9, 10
)

// New returns a Watch of this process.
func New(log *slog.Logger) *Watch { return &Watch{log: log, read: reader("/")} }

// Pressed reports whether memory is short, or was less than a second ago. One caller in a second looks; nobody waits
// for it. A goroutine that looks each second would do so for nothing as long as nobody asks.
func (w *Watch) Pressed() bool {
	now, looked := time.Now().UnixNano(), w.looked.Load()
	if now-looked >= int64(often) && w.looked.CompareAndSwap(looked, now) {
		w.look(now)
	}
	return w.pressed.Load()
}

func (w *Watch) look(now int64) {
	live, limit := w.read()
	short := live > limit/of*part
	was := w.pressed.Swap(short)
	switch said := w.said.Load(); {
	case short && (said == 0 || now-said >= int64(warnEvery)):
		w.said.Store(now)
		w.log.Warn("memory is short: new client streams are refused, and those that are there go on; raise GOMEMLIMIT and the memory limit, or run more replicas", "live_bytes", live, "limit_bytes", limit)
	case was && !short:
		w.log.Info("memory is not short any more: new client streams are taken", "live_bytes", live, "limit_bytes", limit)
	}
}

// reader reads live memory, and what it may be: the lower one of GOMEMLIMIT and the cgroup's limit. None of it stops the world.
func reader(root string) func() (live, limit int64) {
	names := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}, {Name: "/gc/gomemlimit:bytes"}}
	return func() (live, limit int64) {
		samples := slices.Clone(names) // two may read at once
		metrics.Read(samples)
		value := func(i int) int64 {
			if samples[i].Value.Kind() != metrics.KindUint64 {
				return 0
			}
			return int64(min(samples[i].Value.Uint64(), math.MaxInt64))
		}
		return value(0) + value(1), min(value(2), cgroupLimit(root))
	}
}
