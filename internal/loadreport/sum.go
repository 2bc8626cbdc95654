package loadreport

import (
	"time"

	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	lrs "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
)

// Sum is the load of a group of clients.
type Sum struct {
	room    *Room
	bytes   int // of it, taken by this Sum
	dropped func(Reason, int)
	back    *Client // in whose name load comes back that was not sent

	// What the control plane has asked for.
	all       bool            // every cluster
	asked     map[string]bool // or these
	endpoints bool            // by endpoint, too

	clusters map[clusterKey]*cluster
	since    time.Time // what was reported before was taken
}

// clusterKey is by which clusters are told apart.
type clusterKey struct{ name, service string }

// cluster is the load of one.
type cluster struct {
	entry
	since      time.Time // when the time begins that its load is of
	dropped    uint64
	categories map[string]*category
	localities map[localityKey]*locality
}

// category counts the requests that were dropped for one reason.
type category struct {
	entry
	dropped uint64
}

// New returns a Sum that nobody has reported to. dropped is called for parts of reports that are not counted.
func New(room *Room, dropped func(Reason, int), now time.Time) *Sum {
	s := &Sum{room: room, dropped: dropped, clusters: make(map[clusterKey]*cluster), since: now}
	s.back = s.Join()
	return s
}

// Ask takes in what the control plane asks for. Load of what it does not ask for any more is not reported to it.
func (s *Sum) Ask(r *lrs.LoadStatsResponse) {
	s.all, s.endpoints, s.asked = r.GetSendAllClusters(), r.GetReportEndpointGranularity(), make(map[string]bool)
	for _, name := range r.GetClusters() {
		s.asked[name] = true
	}
}

func (s *Sum) wants(cluster string) bool { return s.all || s.asked[cluster] }

// begin is when the time begins that a report of a client is of, as far as it was not reported before. Nobody knows how
// old a report is that comes late, and no client makes the time longer than that of the whole sum.
func (s *Sum) begin(r *endpoint.ClusterStats, now time.Time) time.Time {
	at := now.Add(-max(r.GetLoadReportInterval().AsDuration(), 0))
	if at.Before(s.since) {
		return s.since
	}
	return at
}

// add adds the load of a cluster from when its time begins.
func (s *Sum) add(by *Client, r *endpoint.ClusterStats, begin time.Time) {
	c := s.cluster(by, clusterKey{r.GetClusterName(), r.GetClusterServiceName()})
	if c == nil {
		return
	}
	if c.said = true; c.since.IsZero() || begin.Before(c.since) {
		c.since = begin
	}
	plus(&c.dropped, r.GetTotalDroppedRequests())
	for _, d := range r.GetDroppedRequests() {
		if at := named(by, &c.categories, d.GetCategory()); at != nil {
			at.said = true
			plus(&at.dropped, d.GetDroppedCount())
		}
	}
	for _, l := range r.GetUpstreamLocalityStats() {
		if at := s.locality(by, c, keyOf(l)); at != nil {
			s.addLocality(by, at, l)
		}
	}
}

func (s *Sum) addLocality(by *Client, at *locality, l *endpoint.UpstreamLocalityStats) {
	at.count(l)
	plus(&at.opened, l.GetTotalNewConnections())
	plus(&at.unopened, l.GetTotalFailConnections())
	by.hold(&at.place, l.GetTotalRequestsInProgress(), l.GetTotalActiveConnections())
	s.addMetrics(by, &at.place, l)
	s.addUtilization(&at.cpu, l.GetCpuUtilization())
	s.addUtilization(&at.memory, l.GetMemUtilization())
	s.addUtilization(&at.application, l.GetApplicationUtilization())
	if n := len(l.GetUpstreamEndpointStats()); n > 0 && !s.endpoints {
		s.dropped(Unasked, n)
		return
	}
	for _, e := range l.GetUpstreamEndpointStats() {
		if h := s.host(by, at, e); h != nil {
			h.count(e)
			by.hold(&h.place, e.GetTotalRequestsInProgress(), 0)
			s.addMetrics(by, &h.place, e)
		}
	}
}

func (s *Sum) addUtilization(to *metric, m *endpoint.UnnamedEndpointLoadMetricStats) {
	switch {
	case m == nil:
	case finite(m.GetTotalMetricValue()):
		to.add(m.GetNumRequestsFinishedWithMetric(), m.GetTotalMetricValue())
	default:
		s.dropped(NotFinite, 1)
	}
}

func (s *Sum) addMetrics(by *Client, at *place, r reported) {
	for _, m := range r.GetLoadMetricStats() {
		if !finite(m.GetTotalMetricValue()) {
			s.dropped(NotFinite, 1)
		} else if to := named(by, &at.metrics, m.GetMetricName()); to != nil {
			to.add(m.GetNumRequestsFinishedWithMetric(), m.GetTotalMetricValue())
		}
	}
}

// owned is what has an entry.
type owned interface{ own() *entry }

func (e *entry) own() *entry { return e }

// enter has something that a client has named take its room.
func enter(by *Client, o owned, bytes int) bool {
	if !by.take(bytes) {
		return false
	}
	*o.own() = entry{by: by, bytes: bytes}
	return true
}

// leave has it give its room back.
func (e *entry) leave() { e.by.give(e.bytes) }

// named returns what has a name, and makes it if there is room; nil: there is none.
func named[E any, T interface {
	*E
	owned
}](by *Client, in *map[string]T, name string) T {
	if found, ok := (*in)[name]; ok {
		return found
	}
	fresh := T(new(E))
	if !enter(by, fresh, nameBytes+len(name)) {
		return nil
	}
	if *in == nil {
		*in = make(map[string]T)
	}
	(*in)[name] = fresh
	return fresh
}

func (s *Sum) cluster(by *Client, k clusterKey) *cluster {
	c := s.clusters[k]
	if c == nil {
		c = &cluster{localities: make(map[localityKey]*locality)}
		if !enter(by, c, clusterBytes+len(k.name)+len(k.service)) {
			return nil
		}
		s.clusters[k] = c
	}
	return c
}

func (s *Sum) locality(by *Client, in *cluster, k localityKey) *locality {
	l := in.localities[k]
	if l == nil {
		l = new(locality)
		if !enter(by, l, k.size()) {
			return nil
		}
		in.localities[k] = l
	}
	return l
}

func (s *Sum) host(by *Client, in *locality, e *endpoint.UpstreamEndpointStats) *host {
	k := addressOf(e.GetAddress())
	h := in.endpoints[k]
	if h == nil {
		h = &host{address: e.GetAddress(), metadata: e.GetMetadata()}
		if !enter(by, h, endpointBytes+sizeOf(e)) {
			return nil
		}
		if in.endpoints == nil {
			in.endpoints = make(map[address]*host)
		}
		in.endpoints[k] = h
	}
	return h
}

// give gives room back.
func (s *Sum) give(bytes int) {
	s.bytes -= bytes
	s.room.give(bytes)
}
