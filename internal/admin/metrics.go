package admin

import (
	"regexp"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/upstream"
	upsession "github.com/xds-relay/xds-relay/upstream/session"
)

const prefix = "xds_relay_"

// Metrics counts what happens in a relay. Hand it to the relay as both Observers,
// and then Attach the relay for the gauges over its state.
type Metrics struct {
	registry    *prometheus.Registry
	build       Build
	classicOnly bool // histograms have no native form

	// The counters that the streams increase. Each is safe for concurrent use by itself.
	streams     *prometheus.GaugeVec
	active      *prometheus.GaugeVec // main streams by control plane
	connections *prometheus.GaugeVec
	checks      *prometheus.CounterVec
	open        atomic.Int64 // streams, of all roles except probes
	lost        atomic.Int64 // when the last one ended, or what is on disk was true, in ns since 1970
	lastMessage prometheus.Gauge
	backoff     prometheus.Gauge
	reconnects  *prometheus.CounterVec
	received    *prometheus.CounterVec
	bytesIn     *prometheus.CounterVec
	nacksSent   *prometheus.CounterVec
	resourcesIn *prometheus.CounterVec
	dropped     *prometheus.CounterVec
	expired     *prometheus.CounterVec
	unasked     *prometheus.CounterVec
	leftOut     *prometheus.CounterVec
	quarantined prometheus.Gauge
	upstream    byType[upstreamSeries]

	closed       *prometheus.CounterVec
	connects     *prometheus.CounterVec
	polls        *prometheus.CounterVec
	disconnects  *prometheus.CounterVec
	requests     *prometheus.CounterVec
	responses    *prometheus.CounterVec
	resourcesOut *prometheus.CounterVec
	bytesOut     *prometheus.CounterVec
	ack          *prometheus.HistogramVec
	propagation  *prometheus.HistogramVec
	clients      byType[clientSeries]
	panics       prometheus.Counter
	stalls       prometheus.Counter
	limited      prometheus.Counter
	readingWaits prometheus.Counter
	oversized    *prometheus.CounterVec
	refusals     *prometheus.CounterVec
	names        *prometheus.CounterVec
	calls        callMetrics

	convergence  convergenceMetrics
	snapshot     snapshotMetrics
	certificates certificateMetrics
	files        *filesMetrics
	rules        rulesMetrics
	reload       reloadMetrics
	events       eventMetrics

	observed *observed

	relay Relay // set by Attach; nil before
}

var (
	_ upstream.Observer   = (*Metrics)(nil)
	_ downstream.Observer = (*Metrics)(nil)
)

// What happens to a resource in a response.
const (
	opAdded   = "added"
	opRemoved = "removed"
)

// NewMetrics returns a registry with everything but the gauges over state.
func NewMetrics(b Build, options ...MetricsOption) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), build: b, observed: newObserved()}
	for _, set := range options {
		set(m)
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + name, Help: help})
		m.registry.MustRegister(g)
		return g
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels)
		m.registry.MustRegister(c)
		return c
	}

	m.streams = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: prefix + "upstream_streams",
		Help: "Open streams to the control plane: main, aux (a type wanted both by name and by wildcard), solo (a quarantined type), trial (a type that was never answered) or probe (whether a preferred control plane is back).",
	}, []string{"role"})
	m.active = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: prefix + "upstream_active",
		Help: "Groups that a control plane of the list serves, by the variant that the relay speaks to it: delta or sotw.",
	}, []string{"address", "mode"})
	m.connections = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: prefix + "upstream_connections",
		Help: "Open connections to a control plane of the list. More than one if there are more groups than one connection takes streams, and for calls of services that go through.",
	}, []string{"address"})
	m.registry.MustRegister(m.streams, m.active, m.connections)
	for _, role := range []upsession.Role{upsession.Main, upsession.Auxiliary, upsession.Solo, upsession.Trial, upsession.Probe} {
		m.streams.WithLabelValues(string(role))
	}
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: prefix + "upstream_connected",
		Help: "1 while a stream to the control plane is open. 0 is no fault while nobody subscribes to anything, since the relay then needs no stream.",
	}, func() float64 { return float64(min(m.open.Load(), 1)) }))
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: prefix + "upstream_stale_seconds",
		Help: "Seconds since the last stream to the control plane ended, and so the possible age of the resources. Before the first stream it is the age of the snapshot. 0 while a stream is open, and while the relay has no resources.",
	}, m.stale))
	m.lastMessage = gauge("upstream_last_message_timestamp_seconds", "When the control plane last sent a response, in seconds since 1970; 0 is never.")
	m.backoff = gauge("upstream_backoff_seconds", "The wait before the next attempt to open a stream to the control plane; 0 while one is open.")
	m.reconnects = counter("upstream_reconnects_total", "Streams to the control plane that ended or could not be opened, by reason.", "reason")
	m.checks = counter("upstream_checks_total", "Health checks of a control plane of the list on a silent connection, by result: there, silent, or unclear.", "address", "result")
	m.received = counter("upstream_responses_total", "Responses received from the control plane.", "type")
	m.bytesIn = counter("upstream_received_bytes_total", "Bytes received from a control plane of the list, after TLS: HTTP/2 frames, with messages as they are compressed, health checks included.", "address")
	m.nacksSent = counter("upstream_nacks_sent_total", "Responses of the control plane that the relay rejected as malformed.", "type")
	m.resourcesIn = counter("upstream_resources_received_total", "Resources in the control plane's responses, and names it removed.", "type", "op")
	m.dropped = counter("upstream_dropped_total", "Responses of the control plane that the relay did not use, by reason.", "reason")
	m.unasked = counter("upstream_unasked_dropped_total", "Resources in the control plane's responses that no client of the group subscribes to and that the relay does not keep, because of cache.max_unasked_bytes or of their type.", "type")
	m.leftOut = counter("upstream_names_left_out_total", "Names that clients ask for and that were left out of the list of a SotW control plane, because the list has no room for them (upstream.max_request_bytes); their clients get an error for them.", "type")
	m.expired = counter("resources_expired_total", "Resources whose TTL ran out because the control plane did not renew it.", "type")
	m.quarantined = gauge("upstream_quarantined_types", "Types that the control plane refuses by ending the stream; the relay asks for them on streams of their own.")

	m.closed = counter("client_connections_closed_total", "Connections of clients that the relay closed, by reason. Before the first stream: there were as many as there may be (too_many), the client took more than 10 s to speak HTTP/2, TLS included (handshake_timeout), or it has to wait because it opened streams too fast (flood_wait). With all its streams: it opens streams too fast (flood), or a client with fewer connections needed one (displaced).", "reason")
	m.connects = counter("client_connects_total", "Client streams opened, and clients that began to poll (rest).", "protocol")
	m.polls = counter("client_polls_total", "Polls of clients over REST (downstream.rest), by the HTTP status of their answers.", "type", "code")
	m.disconnects = counter("client_disconnects_total", "Client streams ended, by reason.", "reason")
	m.requests = counter("requests_total", "Requests of clients by what they are: initial, subscribe, ack or nack, or fetch, which is a unary call or a poll over REST.", "type", "kind")
	m.responses = counter("responses_total", "Responses handed to the transport for clients.", "type")
	m.resourcesOut = counter("response_resources_total", "Resources, and removed names, in responses to clients.", "type", "op")
	m.bytesOut = counter("response_bytes_total", "Bytes of responses to clients, before compression and TLS.", "type")
	m.ack = m.histogram("ack_seconds", "Time from handing a response to the transport to its ACK.", latencies)
	m.propagation = m.histogram("propagation_seconds", "Time from receiving a change from the control plane to handing it to the transport for a client; from the oldest of the changes in a response. With tracing it has exemplars.", latencies)
	m.convergence = m.newConvergenceMetrics()
	m.panics = prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + "client_panics_total", Help: "Client streams ended because of a bug in the relay; the log has the stack."})

	m.stalls = prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + "client_stalls_total", Help: "Client streams ended because the client did not read for downstream.stall_timeout."})
	m.limited = prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + "rate_limited_total", Help: "Requests after which the relay paused reading a stream, because its client sends more than downstream.request_rate, or asks for very many names that nobody has asked for."})
	m.readingWaits = prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + "client_reading_waits_total", Help: "Times that a client's connection was not read on because requests that are not taken in take as much memory as downstream.max_inflight_bytes lets them."})
	m.oversized = counter("oversized_total", "Resources and responses that exceed downstream.max_response_bytes: a resource is left out of its response, a SotW response is sent nevertheless. The log has the names.", "type", "what")
	m.names = counter("client_names_refused_total", "Names that the relay refused to streams that go on, by reason: the stream has downstream.max_names_per_stream (over_limit), all streams together have downstream.max_names (names_full), or no rule of authz.rules_file lets the client read them (forbidden).", "reason")
	m.refusals = counter("client_type_refusals_total", "Refusals of one type to a client whose other types are served, by reason. told says what the client gets, as in client_refused_types. With the reason glob a SotW client asks for xdstp globs, and only these are refused; with nameless it asks for a type that only Delta, or a client that unwraps resources, can be served. The log says more.", "type", "reason", "told")
	m.calls = newCallMetrics(counter)
	m.snapshot = newSnapshotMetrics(m.registry)
	m.certificates = newCertificateMetrics(m.registry)
	m.files = newFilesMetrics(m.registry)
	m.rules = newRulesMetrics(m.registry)
	m.reload = newReloadMetrics(m.registry)
	m.events = newEventMetrics(m.registry)
	m.fromTheStart()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: prefix + "build_info", Help: "Always 1; the labels say what is running.",
		ConstLabels: prometheus.Labels{"version": b.Version, "revision": b.Revision, "goversion": b.Go, "protos": b.Protos},
	})
	info.Set(1)
	m.registry.MustRegister(m.panics, m.stalls, m.limited, m.readingWaits, info,
		newGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// newGoCollector is client_golang's own, with the classes of CPU time and the size of the
// live heap, which show the cost of garbage collection.
func newGoCollector() prometheus.Collector {
	return collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(
		collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile(`^(/cpu/classes/.*|/gc/heap/live:bytes)$`)},
	))
}

// Attach adds the gauges over a relay's state, which is asked at each scrape.
// Call it once.
func (m *Metrics) Attach(r Relay) {
	m.relay = r
	m.entriesFromTheStart()
	m.calls.fromTheStart(r.Calls())
	m.registry.MustRegister(newStateCollector(r), newUpstreamCollector(r), newCertificateCollector(r))
}

// --- upstream.Observer ---

// UpstreamConnected counts open streams.
func (m *Metrics) UpstreamConnected(s upstream.Stream, up bool) {
	defer m.observed.move()
	change := 1
	if !up {
		change = -1
	}
	if !s.Role.Experiment() {
		if !up {
			m.lost.Store(time.Now().UnixNano())
		}
		m.open.Add(int64(change))
	}
	m.streams.WithLabelValues(string(s.Role)).Add(float64(change))
	if s.Role == upsession.Main {
		m.active.WithLabelValues(s.Entry, s.Mode()).Add(float64(change))
	}
	if up && !s.Role.Experiment() {
		m.backoff.Set(0)
	}
}

func (m *Metrics) stale() float64 {
	lost := m.lost.Load()
	if lost == 0 || m.open.Load() > 0 {
		return 0
	}
	return time.Since(time.Unix(0, lost)).Seconds()
}

// UpstreamReconnect counts ended streams and failed attempts.
func (m *Metrics) UpstreamReconnect(role upsession.Role, reason string, wait time.Duration) {
	defer m.observed.move()
	m.reconnects.WithLabelValues(reason).Inc()
	if !role.Experiment() {
		m.backoff.Set(wait.Seconds())
	}
}

// UpstreamConnection counts connections.
func (m *Metrics) UpstreamConnection(entry string, up bool) {
	if up {
		m.connections.WithLabelValues(entry).Inc()
	} else {
		m.connections.WithLabelValues(entry).Dec()
	}
}

// UpstreamCheck counts the results of health checks.
func (m *Metrics) UpstreamCheck(entry string, v upsession.CheckResult) {
	m.checks.WithLabelValues(entry, v.String()).Inc()
}

// UpstreamResponse counts what the control plane sends.
func (m *Metrics) UpstreamResponse(t cache.TypeURL, set, removed int) {
	m.lastMessage.SetToCurrentTime()
	m.observed.received(t, set+removed, time.Now())
	u := m.upstream.of(t)
	u.responses.Inc()
	u.added.Add(float64(set))
	u.removed.Add(float64(removed))
}

// upstreamSeries are a type's series that every change updates.
type upstreamSeries struct{ responses, added, removed prometheus.Counter }

func (m *Metrics) newUpstreamSeries(short string) *upstreamSeries {
	return &upstreamSeries{
		responses: m.received.WithLabelValues(short),
		added:     m.resourcesIn.WithLabelValues(short, opAdded),
		removed:   m.resourcesIn.WithLabelValues(short, opRemoved),
	}
}

// UpstreamReceived counts bytes.
func (m *Metrics) UpstreamReceived(entry string, bytes int) {
	m.bytesIn.WithLabelValues(entry).Add(float64(bytes))
	m.observed.bytesIn.Add(int64(bytes))
}

// UpstreamNack counts responses that were rejected.
func (m *Metrics) UpstreamNack(t cache.TypeURL) { m.nacksSent.WithLabelValues(t.Short()).Inc() }

// UpstreamDropped counts responses that were not used.
func (m *Metrics) UpstreamDropped(reason string) { m.dropped.WithLabelValues(reason).Inc() }

// UpstreamUnasked counts resources that nobody had asked for and that were dropped.
func (m *Metrics) UpstreamUnasked(t cache.TypeURL, n int) {
	m.unasked.WithLabelValues(t.Short()).Add(float64(n))
}

// UpstreamLeftOut counts names that were left out of a SotW list.
func (m *Metrics) UpstreamLeftOut(t cache.TypeURL, n int) {
	m.leftOut.WithLabelValues(t.Short()).Add(float64(n))
}

// UpstreamQuarantine counts convicted types.
func (m *Metrics) UpstreamQuarantine(_ cache.TypeURL, convicted bool) {
	if convicted {
		m.quarantined.Inc()
	} else {
		m.quarantined.Dec()
	}
}

// ResourcesExpired counts resources whose TTL ran out.
func (m *Metrics) ResourcesExpired(t cache.TypeURL, n int) {
	m.expired.WithLabelValues(t.Short()).Add(float64(n))
}

// --- downstream.Observer ---

// ClientPoll counts polls.
func (m *Metrics) ClientPoll(t cache.TypeURL, code int) {
	m.polls.WithLabelValues(t.Short(), strconv.Itoa(code)).Inc()
}

// ClientConnectionClosed counts connections that come to nothing.
func (m *Metrics) ClientConnectionClosed(reason downstream.ClosedFor) {
	m.closed.WithLabelValues(string(reason)).Inc()
}

// ClientConnected counts streams that open.
func (m *Metrics) ClientConnected(protocol string) {
	m.connects.WithLabelValues(protocol).Inc()
	m.observed.move()
}

// ClientDisconnected counts streams that end.
func (m *Metrics) ClientDisconnected(_ string, reason session.Reason) {
	m.disconnects.WithLabelValues(string(reason)).Inc()
	m.observed.move()
}

// clientSeries are a type's series that every change updates for every client.
type clientSeries struct {
	requests       map[session.RequestKind]prometheus.Counter
	responses      prometheus.Counter
	added, removed prometheus.Counter
	bytes          prometheus.Counter
	ack            prometheus.Observer
	propagation    prometheus.Observer
}

func (m *Metrics) newClientSeries(short string) *clientSeries {
	c := &clientSeries{
		requests:  make(map[session.RequestKind]prometheus.Counter),
		responses: m.responses.WithLabelValues(short),
		added:     m.resourcesOut.WithLabelValues(short, opAdded),
		removed:   m.resourcesOut.WithLabelValues(short, opRemoved),
		bytes:     m.bytesOut.WithLabelValues(short),
		ack:       m.ack.WithLabelValues(short),

		propagation: m.propagation.WithLabelValues(short),
	}
	for _, kind := range session.RequestKinds {
		c.requests[kind] = m.requests.WithLabelValues(short, string(kind))
	}
	return c
}

// ClientRequest counts requests.
func (m *Metrics) ClientRequest(t cache.TypeURL, kind session.RequestKind) {
	m.clients.of(t).requests[kind].Inc()
	m.observed.move()
}

// ClientResponse counts responses.
func (m *Metrics) ClientResponse(t cache.TypeURL, resources, removed, bytes int) {
	p := m.clients.of(t)
	p.responses.Inc()
	p.added.Add(float64(resources))
	p.removed.Add(float64(removed))
	p.bytes.Add(float64(bytes))
	m.observed.sent(t, resources+removed, bytes)
}

// ClientPropagation measures how long changes take, with a trace for an example.
func (m *Metrics) ClientPropagation(t cache.TypeURL, after time.Duration, trace string) {
	m.observed.types.of(t).propagation.observe(after, time.Now())
	h := m.clients.of(t).propagation
	if e, ok := h.(prometheus.ExemplarObserver); ok && trace != "" {
		e.ObserveWithExemplar(after.Seconds(), prometheus.Labels{"trace_id": trace})
		return
	}
	h.Observe(after.Seconds())
}

// ClientAck measures how long clients take.
func (m *Metrics) ClientAck(t cache.TypeURL, after time.Duration) {
	m.clients.of(t).ack.Observe(after.Seconds())
}

// ClientPanic counts bugs.
func (m *Metrics) ClientPanic() { m.panics.Inc() }

// ClientStalled counts clients that do not read.
func (m *Metrics) ClientStalled() { m.stalls.Inc() }

// ClientReadingWaits counts how often a connection was not read on.
func (m *Metrics) ClientReadingWaits() { m.readingWaits.Inc() }

// ClientRateLimited counts requests that had to wait.
func (m *Metrics) ClientRateLimited() { m.limited.Inc() }

// ClientOversized counts what is too large for a client.
func (m *Metrics) ClientOversized(t cache.TypeURL, what downstream.OversizedKind) {
	m.oversized.WithLabelValues(t.Short(), string(what)).Inc()
}

// ClientNamesRefused counts names that streams go on without.
func (m *Metrics) ClientNamesRefused(reason session.Reason, n int) {
	m.names.WithLabelValues(string(reason)).Add(float64(n))
}

// ClientTypeRefused counts types that single clients are not served.
func (m *Metrics) ClientTypeRefused(t cache.TypeURL, reason session.Reason, told session.Notice) {
	m.refusals.WithLabelValues(t.Short(), string(reason), string(told)).Inc()
}
