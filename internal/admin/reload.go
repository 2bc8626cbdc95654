package admin

import (
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// reloadMetrics tell how the last reload of the configuration went.
type reloadMetrics struct{ ok, at prometheus.Gauge }

func newReloadMetrics(r *prometheus.Registry) reloadMetrics {
	m := reloadMetrics{
		ok: prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "config_last_reload_successful", Help: "1 if the configuration had no mistake when it was last read, 0 if it was refused and the previous one is in force."}),
		at: prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "config_last_reload_success_timestamp_seconds", Help: "When the configuration was last read without a mistake, in seconds since 1970; at first the start."}),
	}
	r.MustRegister(m.ok, m.at)
	m.reloaded(true, time.Now())
	return m
}

func (m reloadMetrics) reloaded(ok bool, at time.Time) {
	if !ok {
		m.ok.Set(0)
		return
	}
	m.ok.Set(1)
	m.at.Set(float64(at.UnixMilli()) / 1000)
}

// ConfigReloaded notes how a reload went. The list of control planes may be another one.
// Series of those that are gone stay.
func (m *Metrics) ConfigReloaded(ok bool, at time.Time) {
	m.reload.reloaded(ok, at)
	if ok && m.relay != nil {
		m.entriesFromTheStart()
	}
}

// reloadWith answers 400 with all that is wrong with the configuration, else with what
// changed.
func reloadWith(reload func() (string, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		outcome, err := reload()
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, "%v\n", err)
			return
		}
		fmt.Fprint(w, outcome)
	}
}
