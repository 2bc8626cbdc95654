package admin

import "github.com/prometheus/client_golang/prometheus"

// rulesMetrics tell how authz.rules_file is read again.
type rulesMetrics struct {
	reloads *prometheus.CounterVec
	fresh   prometheus.Gauge
}

func newRulesMetrics(r *prometheus.Registry) rulesMetrics {
	m := rulesMetrics{
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "authz_rules_reloads_total",
			Help: "Changes of authz.rules_file, by result: ok, or failed, when it has a mistake and the rules before stay in force.",
		}, []string{"result"}),
		fresh: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: prefix + "authz_rules_last_reload_successful",
			Help: "0 while authz.rules_file has changed and has a mistake, so that the rules before stay in force; else 1.",
		}),
	}
	r.MustRegister(m.reloads, m.fresh)
	for _, result := range []string{reloadOK, reloadFailed} {
		m.reloads.WithLabelValues(result)
	}
	m.fresh.Set(1)
	return m
}

// RulesReloaded counts changes of authz.rules_file.
func (m *Metrics) RulesReloaded(ok bool) {
	result, fresh := reloadFailed, 0.0
	if ok {
		result, fresh = reloadOK, 1
	}
	m.rules.reloads.WithLabelValues(result).Inc()
	m.rules.fresh.Set(fresh)
}
