package admin

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// filesMetrics count loads of files that are served in place of a control plane.
type filesMetrics struct {
	loads *prometheus.CounterVec
	last  prometheus.Gauge

	mu    sync.Mutex
	wrong map[string]bool // the paths whose latest load failed
}

func newFilesMetrics(r *prometheus.Registry) *filesMetrics {
	m := &filesMetrics{
		loads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "files_loads_total",
			Help: "Loads of files that are served in place of a control plane, by result: ok, or failed, when something is wrong with them and what was loaded before stays in use.",
		}, []string{"result"}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: prefix + "files_last_load_successful",
			Help: "Whether the latest load of every path that is served in place of a control plane succeeded (1) or not (0).",
		}),
		wrong: make(map[string]bool),
	}
	r.MustRegister(m.loads, m.last)
	for _, result := range []string{reloadOK, reloadFailed} {
		m.loads.WithLabelValues(result)
	}
	m.last.Set(1)
	return m
}

// FilesLoaded counts loads of files.
func (m *Metrics) FilesLoaded(path string, ok bool) { m.files.loaded(path, ok) }

func (m *filesMetrics) loaded(path string, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ok {
		m.loads.WithLabelValues(reloadOK).Inc()
		delete(m.wrong, path)
	} else {
		m.loads.WithLabelValues(reloadFailed).Inc()
		m.wrong[path] = true
	}
	if len(m.wrong) == 0 {
		m.last.Set(1)
	} else {
		m.last.Set(0)
	}
}
