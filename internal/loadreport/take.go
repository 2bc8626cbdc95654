package loadreport

import (
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Take takes what there is to report. Counters begin at nothing, and what nobody has mentioned since the last time, nor has
// anything in progress at, is forgotten (LRS-5).
func (s *Sum) Take(now time.Time) (stats []*endpoint.ClusterStats) {
	for k, c := range s.clusters {
		if !s.wants(k.name) {
			s.forget(k, c)
			continue
		}
		if r := c.take(now); r != nil {
			r.ClusterName, r.ClusterServiceName = k.name, k.service
			stats = append(stats, r)
		} else {
			s.forget(k, c)
		}
	}
	s.since = now
	return stats
}

// GiveBack takes in again what was taken last, and could not be sent (LRS-6). What is in progress was never taken away.
func (s *Sum) GiveBack(stats []*endpoint.ClusterStats) {
	for _, r := range stats {
		s.add(s.back, r, s.since.Add(-r.GetLoadReportInterval().AsDuration()))
	}
}

// Abandon drops everything. It is called once, when no client is left.
func (s *Sum) Abandon() {
	lost := 0
	for k, c := range s.clusters {
		if c.said {
			lost++
		}
		s.forget(k, c)
	}
	if lost > 0 {
		s.dropped(Abandoned, lost)
	}
}

// forget takes a cluster out. Clients that have something in progress there let go of it with their next reports.
func (s *Sum) forget(k clusterKey, c *cluster) {
	for _, l := range c.localities {
		l.forget()
	}
	for _, d := range c.categories {
		d.leave()
	}
	c.leave()
	delete(s.clusters, k)
}

func (l *locality) forget() {
	for _, h := range l.endpoints {
		h.forget()
	}
	l.place.forget()
}

func (p *place) forget() {
	for _, m := range p.metrics {
		m.leave()
	}
	p.leave()
}

// take returns the load of a cluster; nil: there is nothing to say of it.
func (c *cluster) take(now time.Time) *endpoint.ClusterStats {
	r := &endpoint.ClusterStats{TotalDroppedRequests: c.dropped, LoadReportInterval: durationpb.New(now.Sub(c.since))}
	for name, d := range c.categories {
		if d.said {
			r.DroppedRequests = append(r.DroppedRequests, &endpoint.ClusterStats_DroppedRequests{Category: name, DroppedCount: d.dropped})
			d.said, d.dropped = false, 0
		} else {
			d.leave()
			delete(c.categories, name)
		}
	}
	for k, l := range c.localities {
		if l.idle() {
			l.forget()
			delete(c.localities, k)
		} else {
			r.UpstreamLocalityStats = append(r.UpstreamLocalityStats, l.take(k))
		}
	}
	if !c.said && len(c.localities) == 0 {
		return nil
	}
	c.said, c.dropped, c.since = false, 0, now
	return r
}

func (l *locality) take(k localityKey) *endpoint.UpstreamLocalityStats {
	r := &endpoint.UpstreamLocalityStats{
		Locality: &core.Locality{Region: k.region, Zone: k.zone, SubZone: k.subZone}, Priority: k.priority,
		TotalSuccessfulRequests: l.successful, TotalErrorRequests: l.failed, TotalIssuedRequests: l.issued, TotalRequestsInProgress: l.requests,
		TotalNewConnections: l.opened, TotalFailConnections: l.unopened, TotalActiveConnections: l.connections,
		CpuUtilization: l.cpu.take(), MemUtilization: l.memory.take(), ApplicationUtilization: l.application.take(),
		LoadMetricStats: l.takeMetrics(),
	}
	for a, h := range l.endpoints {
		if h.idle() {
			h.forget()
			delete(l.endpoints, a)
			continue
		}
		r.UpstreamEndpointStats = append(r.UpstreamEndpointStats, &endpoint.UpstreamEndpointStats{
			Address: h.address, Metadata: h.metadata,
			TotalSuccessfulRequests: h.successful, TotalErrorRequests: h.failed, TotalIssuedRequests: h.issued, TotalRequestsInProgress: h.requests,
			LoadMetricStats: h.takeMetrics(),
		})
		h.reset()
	}
	l.reset()
	return r
}

func (p *place) takeMetrics() (all []*endpoint.EndpointLoadMetricStats) {
	for name, m := range p.metrics {
		if !m.said {
			m.leave()
			delete(p.metrics, name)
			continue
		}
		taken := m.take()
		all = append(all, &endpoint.EndpointLoadMetricStats{
			MetricName: name, NumRequestsFinishedWithMetric: taken.NumRequestsFinishedWithMetric, TotalMetricValue: taken.TotalMetricValue,
		})
	}
	return all
}

// take returns the sum of a metric without a name; nil: nobody has mentioned it.
func (m *metric) take() *endpoint.UnnamedEndpointLoadMetricStats {
	if !m.said {
		return nil
	}
	r := &endpoint.UnnamedEndpointLoadMetricStats{NumRequestsFinishedWithMetric: m.finished, TotalMetricValue: m.total}
	m.said, m.finished, m.total = false, 0, 0
	return r
}
