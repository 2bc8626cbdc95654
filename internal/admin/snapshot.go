package admin

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// snapshotMetrics count what happens to the snapshot on disk.
type snapshotMetrics struct {
	writes  prometheus.Counter
	loads   prometheus.Counter
	errors  *prometheus.CounterVec
	written prometheus.Gauge
	bytes   prometheus.Gauge
	seconds prometheus.Gauge
}

func newSnapshotMetrics(r *prometheus.Registry) snapshotMetrics {
	m := snapshotMetrics{
		writes:  prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + "snapshot_writes_total", Help: "Snapshots written to disk."}),
		loads:   prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + "snapshot_loads_total", Help: "Snapshots loaded from disk at the start: 0 or 1."}),
		errors:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "snapshot_errors_total", Help: "Snapshots that could not be written or loaded; serving is not affected."}, []string{"operation"}),
		written: prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "snapshot_timestamp_seconds", Help: "When the snapshot on disk was last written, or the age of what was loaded, in seconds since 1970; 0 is never. While the control plane is alive and something is wanted, it is written each minute at least."}),
		bytes:   prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "snapshot_bytes", Help: "Size of the snapshot on disk, with what no client wants any more."}),
		seconds: prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "snapshot_write_seconds", Help: "Duration of the last write."}),
	}
	r.MustRegister(m.writes, m.loads, m.errors, m.written, m.bytes, m.seconds)
	for _, operation := range []string{"load", "write"} {
		m.errors.WithLabelValues(operation)
	}
	return m
}

// SnapshotWritten counts a snapshot that was written.
func (m *Metrics) SnapshotWritten(bytes int64, took time.Duration) {
	m.snapshot.writes.Inc()
	m.snapshot.written.SetToCurrentTime()
	m.snapshot.bytes.Set(float64(bytes))
	m.snapshot.seconds.Set(took.Seconds())
}

// SnapshotLoaded counts a snapshot that was loaded, and notes as of when it is: what
// is served is that old until the control plane answers.
func (m *Metrics) SnapshotLoaded(_ int, asOf time.Time) {
	m.snapshot.loads.Inc()
	m.snapshot.written.Set(float64(asOf.UnixMilli()) / 1000)
	m.lost.CompareAndSwap(0, asOf.UnixNano())
}

// SnapshotFailed counts what did not work.
func (m *Metrics) SnapshotFailed(operation string) {
	m.snapshot.errors.WithLabelValues(operation).Inc()
}
